"""SPANK plugins written in Python.

Run in the command as its user, and in a stepd and its tasks as root or as the user. `nodectl plugins --hooks` says
where each hook runs.
"""
