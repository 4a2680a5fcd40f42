"""The controller of jobs, in the daemon: the table of jobs and the file of the table, the queue, starts and ends of
jobs.

The controller asks `nodectl.scheduler` which job starts when, and carries that out with the parts of the daemon below.
Used only from the event loop, as root. `controller.py` is the queue; `core.py` and `parts.py` hold what the other files
share. A job comes in by `job_request.py` and `options.py`, is found by `table.py` and `job_names.py`, written by
`commits.py`, awaited by `leases.py`, started by `rounds.py`, `starts.py` and `spool.py`, signalled by `job_signals.py`,
ended by `ends.py`, and shown by `rows.py`. `departures.py` lets a launch wait for resources that are about to become
free, `drain.py` keeps jobs off the machine, `steps_told.py` reports steps to the select plugin. `restore.py` and
`this_machine.py` run once, at a start.
"""
