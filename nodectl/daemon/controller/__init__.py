"""Jobs, in the daemon: their table and its file, the queue, and what starts and ends them.

It asks `nodectl.scheduler` which job starts when, and carries that out with the parts of the daemon below. Used only
from the event loop, as root. `controller.py` is the queue; `core.py` and `parts.py` are what its other files share.
A job comes by `job_request.py` and `options.py`, is found by `table.py` and `job_names.py`, written by `commits.py`,
awaited by `leases.py`, started by `rounds.py`, `starts.py` and `spool.py`, signalled by `job_signals.py`, ended by
`ends.py`, and told of by `rows.py`. `departures.py` lets a launch wait for what is about to be free, `drain.py` keeps
jobs from the machine, `steps_told.py` tells the select plugin of steps. `restore.py` and `this_machine.py` run once, at
a start.
"""
