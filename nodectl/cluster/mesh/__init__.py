"""The members of the cluster and the way of a message: joining, routes, lost ranks. The entry point is `mesh.Mesh`.

Run by the agent and the leader, which are processes of the user. Every module but `mesh.py`, `links.py` and `parent.py`
has no I/O and no clock: the caller passes in the messages and the time, and gets back the messages to send.
"""
