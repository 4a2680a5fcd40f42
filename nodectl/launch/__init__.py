"""A launch, from the fork of a step runner to the record: the forkserver, the stepd, the tasks.

The daemon uses the descriptions of cgroups and containers.

Theory of operation
-------------------
The daemon has admitted a step. It has decided the step's CPUs, memory and devices, made its cgroup, and written its
file and an empty trace. It sends an order to the forkserver, with descriptors that it has opened itself.

    forkserver      root            one for the daemon, executed by it; has all code and plugins loaded before any step
     └ stepd        root            one for each step, forked by the forkserver in the step's cgroup
        ├ task      root, then user one for each program; executes a list of operations, the last of which is exec
        ├ relay     user            copies streams, where a label, a shared stdin or a terminal needs it
        ├ MPI       user            answers the tasks of an MPI program
        ├ warm      user            the interpreter of --preload; a fork of it can become a task
        └ scripts   user            the epilogs of a task that has ended
     └ container    root            one for each request about a job's container outside of a step
    job script      root            one for each prolog or epilog, executed by the daemon

1. The stepd makes the job's container and the tracker's cgroup, loads the SPANK plugins and calls their first hooks.
2. The stepd starts all tasks. Each task binds itself, enters the container and becomes the user, for good. Then it
   waits at the gate, a pipe of the stepd's.
3. When all tasks are tracked and announced to the plugins, the stepd opens the gate. No code of the user runs earlier.
4. Each task is confined, calls the hooks that run as the user, and executes the program.
5. The stepd waits in one loop for ends, signals and deadlines. It calls the hooks of each task's end, then ends what is
   left of the step, calls the last hooks and writes the record.

`nodectl.model.launch_order` is the order of all calls. A call that fails costs what its row says. Any process can be
killed at any instruction; then
    daemon          its forkserver ends; stepds go on and leave their records, which the next daemon reads
    forkserver      its stepds go on; the daemon executes another one for the next step
    stepd           waiting tasks read the end of the gate and exit. The daemon kills the step's cgroup and records
                    NODE_FAIL; without cgroups, the tasks get SIGKILL with the stepd's death (PR_SET_PDEATHSIG)
    task            the others go on; the stepd says in which call the task died, and a required plugin ends the step
    relay, MPI      the stepd ends the step
    container       the daemon repeats the request
    job script      a prolog that died refuses the job; an epilog that died is noted in the record
    client          the stepd ends the step: SIGTERM, and SIGKILL after `kill_wait`
"""
