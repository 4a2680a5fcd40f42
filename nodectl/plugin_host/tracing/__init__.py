"""The records of a running launch: a line for each call, and the position of each process.

Every process of a launch runs it, as root or as the user: the daemon, a stepd and its tasks. Imports kernel, wire and
model.
"""
