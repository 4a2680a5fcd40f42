"""The processes that the daemon executes, and the channels to them: the forkserver, and helpers for one purpose each.

Runs in the daemon, as root. It imports none of the daemon's other packages.
"""
