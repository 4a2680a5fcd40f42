"""What a launch records of itself while it runs: a line for each call, and where each process is.

Used in every process of a launch. Imports kernel, wire and model.
"""
