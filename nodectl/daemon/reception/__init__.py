"""The daemon's side of the reception: starting and replacing that process, its connections, who made them, and what
they may see.

Runs in the daemon, as root. Of the daemon's packages it imports only `processes`.
"""
