"""Steps that run: starting them through the forkserver, following them, and what their users ask of them.

Runs in the daemon, as root.
"""
