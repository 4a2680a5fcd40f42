"""`nodectl select check` and `try`: examine a select plugin, or play a workload against a plugin.

Runs in the command, as its user; needs no service. It imports client, simulation and the layers below them.
"""
