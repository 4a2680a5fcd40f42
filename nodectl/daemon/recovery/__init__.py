"""What an earlier daemon left: the lock, running steps taken over, ended steps recorded.

Runs in the daemon at its start, as root.
"""
