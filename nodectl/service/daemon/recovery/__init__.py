"""Recovery from an earlier daemon: the lock, the take-over of running steps, the recording of ended steps.

Runs in the daemon at its start, as root. It imports `steps` and `jobs`.
"""
