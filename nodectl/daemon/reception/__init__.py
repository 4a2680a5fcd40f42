"""The daemon's side of the reception: starting and replacing it, its connections, and who made them.

Runs in the daemon, as root.
"""
