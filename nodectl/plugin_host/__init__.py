"""Plugins of every kind: finding, checking, loading and calling them.

Used by the daemon, the forkserver, a stepd and its tasks.
"""
