"""A task, from its fork to its program: streams, environment, scripts, limits.

Runs in the task's own process, as root until it becomes the user, and in part in the stepd before the fork. After the
fork it looks up and imports nothing. It may import what stands below it, and nothing of the stepd.

The way of a task:
    step_context.py     what all tasks of a step share; the stepd makes it
    environment.py, stdio.py, filename.py   decided by the stepd before the fork
    child.py            what the stages of one task share
    main.py             `SEQUENCE`: the stages in their order, `execute` is the last
    placement.py, client_streams.py, rlimits.py, tmpdir.py   what some stages do
    reports.py          what a task tells its stepd before its program runs
    pump.py             the process that copies streams, for -l, -u and a shared stdin
"""
