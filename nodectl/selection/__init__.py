"""The select interface: the choice of a job's nodes and cores. Records and bitmaps, and the host of a select plugin.

A select plugin runs in the daemon, as root, and in planning commands (`nodectl select`). It imports from here the
values that it is given and returns; decisions on time and order are `nodectl.scheduler`'s. Imports the layers below:
the machine, binding, the host of plugins.
"""
