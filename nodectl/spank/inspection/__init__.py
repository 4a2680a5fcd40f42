"""Facts and faults of a SPANK plugin, read from its file without executing anything of it.

Runs in commands: `nodectl plugins`, `nodectl doctor`, and the tools for authors of plugins.
"""
