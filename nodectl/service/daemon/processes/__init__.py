"""The forkserver and single-purpose helpers: the processes executed by the daemon, and the channels to each.

Runs in the daemon, as root. It imports none of the daemon's other packages.
"""
