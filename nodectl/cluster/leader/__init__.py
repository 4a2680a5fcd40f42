"""The leader: what runs where on the nodes of a cluster, who waits, and what became of it.

Run by one process of a cluster, `nodectl.cluster.leader.main`, as the user. All but that file and the journal decides
without clock and without I/O: it is told what has happened and at what time, and answers with what is to be sent and
kept. A simulator runs the same code for ten thousand nodes.
"""
