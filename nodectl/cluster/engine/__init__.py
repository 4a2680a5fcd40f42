"""The engine: gives nodes and starts agents there. One interface, implemented for Slurm and for a list of hosts.

Run by the command `nodectl cluster` and by the holder process which the command leaves behind, as the user.
"""
