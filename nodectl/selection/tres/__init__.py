"""Consumable resources: CPUs, cores, sockets, memory and devices of nodes, the present use, and a job's choice.

The knowledge of select/cons_tres. Runs where that plugin does: in the daemon, and in planning commands. Nodes that are
alike in shape and use are one value here (`use.py`), so that a question is answered once for all of them.
"""
