"""A connection between two processes of a cluster: TLS 1.3, frames within it, and asyncio around both.

Used by the agent and the leader, and by any process that joins them. Both sides have the cluster's only certificate,
computed from its secret, and accept no other. Certificate, TLS and frames do no I/O and have no clock.
"""
