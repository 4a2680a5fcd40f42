"""Job container plugins: what of the machine a job has to itself.

Run as root: in a stepd, in its tasks, and in the forkserver's container processes.
"""
