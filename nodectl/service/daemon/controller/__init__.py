"""The controller of jobs, in the daemon: the table of jobs and the file of the table, the queue, starts and ends of
jobs.

The controller asks `nodectl.scheduler` which job starts when, and carries that out with the parts of the daemon below.
Used only from the event loop, as root. `controller.py` is the queue, from the submission of a job to its end. A job
comes in by `job_request.py` and `options.py`, is found by `table.py` and `job_names.py`, written by `commits.py`,
awaited by `leases.py`, started by `rounds.py`, `starts.py` and `spool.py`, and shown by `rows.py`. `departures.py` lets
a launch wait for resources that are about to become free. `restore.py` and `this_machine.py` run once, at a start.
"""
