"""Who leads after the node of the leader is lost: what the nodes leave each other on a disk that they share.

Run by the agent, the leader, and the heir: a process that an agent starts when it misses the root of the tree.
"""
