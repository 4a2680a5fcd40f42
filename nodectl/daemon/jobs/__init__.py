"""Around the steps of a job: prologs and epilogs, the container, resources told to plugins, SPANK's slurmd context.

Runs in the daemon or in processes that it executes, as root.
"""
