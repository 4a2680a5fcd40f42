"""The leader: places steps on the nodes of a cluster, keeps the queue of launches, and records the steps' ends.

The leader runs in one process of a cluster, `nodectl.cluster.leader.main`, as the user. All files but `main.py` and the
journal decide without clock and without I/O: they are told the events and their time, and return the messages to send
and the entries to keep. A simulator runs the same code for ten thousand nodes.
"""
