"""A task, from its birth to its program: streams, environment, scripts, limits.

The stepd composes what a task does; the task's own process does it, as root until it becomes the user, and there it
looks up and imports nothing. It may import what stands below it, and nothing of the stepd.

The way of a task:
    step_context.py     what all tasks of a step share; the stepd makes it
    environment.py, stdio.py, filename.py   decided by the stepd
    common_words.py     what the programs of all tasks are given, once
    child.py            what the stages of one task share
    main.py             `SEQUENCE`: the stages in their order, `execute` is the last
    placement.py, client_streams.py, rlimits.py   what some stages need
    reports.py          what a task tells its stepd before its program runs
    pump.py             the process that copies streams, for -l, -u and a shared stdin
    terminal.py         likewise the terminal of --pty
    viewers.py          who sees what these copy
"""
