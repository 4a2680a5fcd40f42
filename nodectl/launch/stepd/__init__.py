"""The stepd: one root process with one thread for each step.

The stepd calls the plugins, forks the tasks, waits for them and writes the step's record. The forkserver forks it; it
outlives the daemon. It may import the packages below it: task, container, spank, plugin_host and the rest, but nothing
of the forkserver or the daemon.

The way of a step:
    orders.py           reads the order, and waits for the next one in a stepd that is kept
    main.py             `run_step`: containers, trackers, plugins, tasks, the gate; `finish`: the rest, the cgroups
    start.py            starts the tasks, each up to the gate
    relays.py           starts the processes that copy streams
    mpi.py              the MPI server; mpi_part.py: its links to the step's other nodes
    preload.py          the warm interpreter of --preload
    run.py              Run, the state of the step; the part of it for tasks is task/step_context.py
    reaper.py           the loop: the ends of tasks, connections, deadlines
    termination.py      the early end of a step: signals, time limit, SIGKILL
    connections.py      the links to the client and to the daemon
    methods.py          the methods of org.nodectl.step
    suspension.py       suspend and resume
    plugin_output.py    output of plugins to stderr
    script_messages.py  lines for the user of a script
    user_helpers.py     processes that open a user's paths
    task_epilogs.py     the scripts after a task
    accounting.py       figures of the cgroups
    end_reasons.py      out of memory, out of processes
    exit_status.py      the step's exit status and state
    record.py           the step's record
    bulk_commands.py    the commands that the client of a bulk step sends
"""
