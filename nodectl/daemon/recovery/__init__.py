"""What an earlier daemon left: the lock, running steps that are taken over, ended steps that are recorded.

Runs in the daemon at its start, as root. It imports `steps` and `jobs`.
"""
