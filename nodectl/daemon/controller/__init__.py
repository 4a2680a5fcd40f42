"""Jobs, in the daemon: their table and its file, the queue, and what starts and ends them.

It asks `nodectl.scheduler` which job starts when, and carries that out with the parts of the daemon below. Used only
from the event loop, as root.
"""
