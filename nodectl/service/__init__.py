"""The service: the listener with its session processes, and the daemon.

No command imports these packages, except the one that starts the daemon.
"""
