"""A feature, several nodes as a cluster: agents, the tree between agents, the leader, and the engine to start agents.

Runs in the processes of a cluster, all of them the user's: the agent, one on each node, and the leader; and in the
command that starts the cluster. Nothing here is privileged.
"""
