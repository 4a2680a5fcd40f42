"""The checks of `nodectl doctor`: what this machine and its configuration lack, one file for each subject.

Runs in the command, as its user: as root it sees more. It imports the subjects that it looks at, and nothing imports it
but the command.
"""
