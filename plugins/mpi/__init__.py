"""MPI plugins: how the tasks of a parallel program find each other.

Run in the daemon and a stepd, as root. The server that tasks talk to runs as the user, in its own process.
"""
