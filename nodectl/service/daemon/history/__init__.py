"""Ended steps: the history on disk, the pruning of the history, and notes for a reset of the machine.

Runs in the daemon, as root. Of the daemon's packages it imports only `steps`.
"""
