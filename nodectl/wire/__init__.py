"""Varlink over a local socket: framing, shapes of messages, dispatch of calls, and the interfaces' descriptions.

Used by the daemon, the reception, a stepd and the command. Imports nothing of nodectl.
"""
