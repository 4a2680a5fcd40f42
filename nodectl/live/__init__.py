"""What runs and waits on this machine, looked at again and again: jobs, steps, and what these use. The commands
`nodectl top` and `nodectl web` ask the service and read cgroups, as their user.
"""
