"""The select interface: which nodes and cores a job gets. Its records and bitmaps, and the host of one select plugin.

A select plugin runs in the daemon, as root, and in commands that plan (`nodectl select`). It imports from here what it
is given and what it returns; decisions on time and order are `nodectl.scheduler`'s. Imports the layers below: the
machine, binding, the host of plugins.
"""
