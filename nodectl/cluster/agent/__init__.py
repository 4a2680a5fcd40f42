"""The agent: the process of a cluster on a node, run as the user.

The agent starts the user's own daemon on the node and, as its client, runs parts of steps there and carries their
streams. It opens the gateway (class Gateway), a socket by which commands of this node reach the cluster.
"""
