"""Consumable resources: what the CPUs, cores, sockets, memory and devices of nodes are taken by, and how jobs choose.

What select/cons_tres knows. Runs where that plugin does: in the daemon, and in commands that plan. Nodes that are alike
in shape and use are one value here (`use.py`), so that a question is answered once for all of them.
"""
