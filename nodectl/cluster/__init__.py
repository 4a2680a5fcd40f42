"""Several nodes as one: agents, the tree between them, the leader, and the engine that starts them.

Run by the processes of a cluster, all of them the user's: the agent, one on each node, and the leader; and by the
command that starts them. Nothing here is privileged.
"""
