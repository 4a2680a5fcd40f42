"""The forkserver: a lean Python, started by the daemon, from which stepds and container processes are forked.

Root. Imports what those processes need, once, before the first fork.
"""
