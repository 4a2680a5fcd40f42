"""`nodectl spank check`, `try` and `list`: examine a plugin without execution, or run the plugin in every context.

Runs in the command, as its user. It imports client, render and the layers below them.
"""
