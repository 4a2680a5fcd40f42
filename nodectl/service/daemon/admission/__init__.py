"""From a request to a step: the caller, the caller's limits, the layout of the tasks, the confinement.

Runs in the daemon, as root. It imports `processes`, `listener`, `steps` and `jobs`.
"""
