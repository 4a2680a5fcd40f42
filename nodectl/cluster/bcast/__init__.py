"""A file for all nodes of a cluster: a step of one task on each, whose standard input it is.

The command `nodectl bcast` sends, the tasks receive, as the user. The step's input goes along the agents' tree.
"""
