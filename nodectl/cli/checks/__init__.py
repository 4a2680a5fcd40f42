"""The checks of `nodectl doctor`: deficiencies of this machine and of the configuration, a file for each subject.

Runs in the command, as its user: as root it sees more. Imports the subjects that it checks; only the command imports
it.
"""
