"""MPI plugins: how the tasks of a parallel program find each other.

Run in the daemon and a stepd, as root. What they serve tasks with runs as the user, in a process of its own.
"""
