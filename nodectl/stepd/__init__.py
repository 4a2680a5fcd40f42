"""The step runner: one process per step, root, one thread; and the tasks it forks."""
