"""`nodectl spank check`, `try` and `list`: a plugin is looked at without being run, or run in every context.

Runs in the command, as its user. It imports client, render and what stands below them.
"""
