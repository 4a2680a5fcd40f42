"""Reception: users' connections are accepted, read and checked here, and nowhere else.

One process accepts (`main.py`, root). It forks a desk for each user who is connected (`desk.py`, as that user, under
limits), which reads their bytes and holds their descriptors. The daemon gets checked calls through a pipe and sends
replies and descriptors of its own through a socket (`wire/frames.py`); it never receives, looks at or closes what a
user made. A desk that hangs or dies costs its user a connection, and nobody else anything.

Imported by both processes and by the daemon's side, `nodectl/daemon/reception/supervisor.py`. Imports wire and what is
below it.
"""
