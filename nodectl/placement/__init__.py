"""The machine's topology, and which task of a step goes to which CPU.

Run by the daemon, and by the command `nodectl bind`.
"""
