"""The daemon's side of users' connections: starts and replaces the listener, serves calls, decides permissions.

Runs in the daemon, as root. Of the daemon's packages it imports only `processes`.
"""
