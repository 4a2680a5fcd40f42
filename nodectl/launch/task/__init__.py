"""The life of a task, from birth to program: environment, scripts, limits.

The stepd composes the operations of a task; the task's own process carries them out, as root until it becomes the user,
and looks up and imports nothing there. This package may import the packages below it, and nothing of the stepd.

The way of a task:
    step_context.py     the state shared by all tasks of a step; the stepd makes it
    environment.py      decided by the stepd, as are the streams (`nodectl/launch/streams`)
    common_words.py     the words that the programs of all tasks get, stored once
    child.py            the state shared by the stages of one task
    main.py             `SEQUENCE`: the stages in their order, `execute` is the last
    placement.py, rlimits.py   helpers of some stages
    reports.py          reports of a task to its stepd before its program runs
"""
