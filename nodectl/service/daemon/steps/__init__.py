"""Running steps: the files, the connections to stepds, the usage, and the kernel's out-of-memory kills.

Runs in the daemon, as root. It imports none of the daemon's packages above `processes`.
"""
