"""The processes that the daemon executes, and the channels to them: the forkserver, and helpers for one purpose each.

Runs in the daemon, as root. The lowest of the daemon's packages: it imports none of the others.
"""
