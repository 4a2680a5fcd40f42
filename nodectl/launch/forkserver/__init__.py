"""The forkserver: a lean Python process, executed by the daemon.

As root it forks every stepd and every process for a container request, and it imports what those need once, before the
first fork. It may import every package below it, but nothing of the daemon.

The way of a step:
    main.py                 receives the daemon's order
    stepds.py, runners.py   fork a stepd into its cgroup, or hand the order to a warm runner
    stepd/main.py           `run_step` is the launch, `finish` the end
    task/stages.py          `SEQUENCE` lists what a task does from its fork to its program
Outside of a step:
    container_requests.py   forks a process that deletes or restores containers, or enters one
    enter.py, bcast.py      execute a program or write a file in a job's container
"""
