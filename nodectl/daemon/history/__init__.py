"""Steps that have ended: the history and what it forgets.

Runs in the daemon, as root.
"""
