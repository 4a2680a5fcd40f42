"""The daemon's side of the reception: starting and replacing that process, its connections, and who made them.

Runs in the daemon, as root. Of the daemon's packages it imports only `processes`.
"""
