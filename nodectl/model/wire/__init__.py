"""Varlink over a local socket: framing, shapes of messages, dispatch of calls, and the interfaces' descriptions.

Used by the daemon, the listener and session processes, a stepd and the command. Imports nothing of nodectl.
"""
