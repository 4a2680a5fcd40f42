"""A connection between two processes with a common secret: handshake, frames with a MAC, and asyncio around both.

Used by the agent and the leader, and by any process that joins them. Handshake and frames do no I/O and have no clock.
The link is authentic and whole, but not secret: a reader of the network's packets can read the messages.
"""
