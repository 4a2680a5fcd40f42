"""The command `nodectl`: a file for each subcommand, found by `main.py`.

Runs in the command, as its user. It imports the packages of the core; commands of features are in the features'
folders, and `features.py` finds them. Code shared by two commands is in `client`.
"""
