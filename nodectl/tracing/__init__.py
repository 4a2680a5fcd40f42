"""What a launch records of itself while it runs: a line for each call, and where each process is.

Every process of a launch runs it, as root or as the user: the daemon, a stepd and its tasks. Imports kernel, wire and
model.
"""
