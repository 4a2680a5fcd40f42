"""Repeated looks at the machine: running and waiting jobs and steps, and their use of resources.

The commands `nodectl top` and `nodectl web` ask the service and read cgroups, as their user.
"""
