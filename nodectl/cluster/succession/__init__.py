"""The succession of leaders after the loss of the leader's node, by files on a disk shared by the nodes.

Run by the agent, the leader, and the successor: a process that an agent starts when it misses the root of the tree.
"""
