"""The copy of a file to all nodes of a cluster: a step with a task on each node, with the file as standard input.

The command `nodectl bcast` sends, the tasks receive, as the user. The step's input goes along the agents' tree.
"""
