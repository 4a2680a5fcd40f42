"""The agent: the process of a cluster on one node. It starts the user's own node there and, as its client, runs parts
of steps on it, carries their streams, and opens the door at which commands of this node reach the cluster.
"""
