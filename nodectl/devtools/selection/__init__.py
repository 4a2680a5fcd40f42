"""`nodectl select check` and `try`: a select plugin is examined, or has a workload played against it.

Runs in the command, as its user; needs no service. It imports client, simulation and what stands below them.
"""
