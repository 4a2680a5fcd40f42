"""The daemon's side of the reception: starts and replaces the listener, serves connections, decides permissions.

Runs in the daemon, as root. Of the daemon's packages it imports only `processes`.
"""
