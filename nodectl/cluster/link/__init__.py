"""A connection between two processes that know one secret: handshake, frames with a MAC, and asyncio around them.

Used by the agent and the leader, and by any process that joins them. Handshake and frames do no I/O and have no clock.
The link is authentic and whole, it is not secret: who can read the network's packets can read the messages.
"""
