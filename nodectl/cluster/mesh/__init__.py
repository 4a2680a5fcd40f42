"""Who is in the cluster and how a message gets there: joining, routes, the dead. `mesh.Mesh` is what others use.

Run by the agent and the leader, which are processes of the user. All but `mesh.py` and `parent.py` is without I/O and
without a clock: it is told what came and when, and says what to send.
"""
