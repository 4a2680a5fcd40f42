"""Steps that run: their files, the connections to their stepds, and how the kernel kills their processes.

Runs in the daemon, as root. It imports none of the daemon's packages above `processes`.
"""
