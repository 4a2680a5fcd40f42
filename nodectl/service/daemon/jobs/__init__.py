"""Jobs: the registry of this node's steps, and the daemon's work around the steps of a job.

That is prologs and epilogs, the container, cgroups, resources of task plugins, further steps, and SPANK's slurmd
context. Runs in the daemon, and in processes that it executes, as root. It imports `processes`, `connections`, `steps`
and `history`.
"""
