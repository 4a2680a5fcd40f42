"""A launch, from the fork of a step runner to the record: the forkserver, the stepd, the tasks.

The daemon uses the descriptions of cgroups and containers.
"""
