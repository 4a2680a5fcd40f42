"""The stepd: one root process with one thread for each step. It calls the plugins, forks the tasks, waits for them and
writes the step's record. The forkserver forks it; it outlives the daemon. It may import what stands below it: task,
container, spank, plugin_host and the rest, but nothing of the forkserver or the daemon.

The way of a step:
    main.py             `run_step`: containers, trackers, plugins, tasks, the gate; `finish`: what is left, the cgroups
    start.py            starts the tasks, each up to the gate
    run.py              Run, the state of the step; what its tasks need of it is task/step_context.py
    reaper.py           the loop: waits for the ends of tasks, for connections, for what is due
    termination.py      what ends a step early: signals, time limit, SIGKILL
    connections.py      the links to the client and to the daemon
    methods.py          the methods of org.nodectl.step
    suspension.py       suspend and resume
    plugin_output.py    what plugins write to stderr
    script_messages.py  lines for the user of a script
    user_helpers.py     processes that open a user's paths
    task_epilogs.py     the scripts after a task
    accounting.py       figures of the cgroups, and the kernel's out-of-memory log
    end_reasons.py      out of memory, out of processes
    exit_status.py      the step's exit status and state
    record.py           its record
    bulk/               a step whose tasks are slots for any number of commands
"""
