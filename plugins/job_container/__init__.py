"""Job container plugins: private directories and namespaces of a job.

Run as root: in a stepd, in its tasks, and in the forkserver's container processes.
"""
