"""Steps that have ended: the history on disk, what it forgets, and what is noted for a reset of the machine.

Runs in the daemon, as root. Of the daemon's packages it imports only `steps`.
"""
