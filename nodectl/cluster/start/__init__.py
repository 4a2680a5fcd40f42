"""The start of a cluster: the starter and the holder, which start agents, and the protocol between holder and agent.

Run by the command `nodectl cluster start` and by the process that it leaves behind, the holder; the agent runs
`words.py`, too.
"""
