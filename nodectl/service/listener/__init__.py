"""The listener and its session processes: they accept, read and check users' connections for the daemon.

The listener (`main.py`, root) accepts connections. It forks a session process (`session.py`) for each connected
user. The session process runs as that user, under limits, reads the user's bytes and holds the user's
descriptors. The daemon gets checked calls through a pipe and sends replies and its own descriptors through a socket
(`wire/frames.py`); it never receives, examines or closes anything a user made. A session process that hangs or dies
costs only its own user a connection.

Imported by both processes and by the daemon's side, `nodectl/service/daemon/connections/supervisor.py`. Imports wire
and the packages below it.
"""
