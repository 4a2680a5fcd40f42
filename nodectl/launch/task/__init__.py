"""The life of a task, from birth to program: streams, environment, scripts, limits.

The stepd composes the operations of a task; the task's own process carries them out, as root until it becomes the user,
and looks up and imports nothing there. This package may import the packages below it, and nothing of the stepd.

The way of a task:
    step_context.py     the state shared by all tasks of a step; the stepd makes it
    environment.py, stdio.py, filename.py   decided by the stepd
    common_words.py     the words that the programs of all tasks get, stored once
    child.py            the state shared by the stages of one task
    main.py             `SEQUENCE`: the stages in their order, `execute` is the last
    placement.py, client_streams.py, rlimits.py   helpers of some stages
    reports.py          reports of a task to its stepd before its program runs
    relay.py             the process that copies streams, for -l, -u and a shared stdin
    terminal.py         the process that copies the terminal of --pty
    viewers.py          the viewers of the copied streams
"""
