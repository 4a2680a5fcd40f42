"""How a cluster begins: the starter and its holder on one side, agents on the other.

Run by the command `nodectl cluster start` and by the process that it leaves behind, the holder; `words.py` by the
agent, too.
"""
