"""Values that every other package may use: a step, the order of a launch, numbers and lists of CPUs.

Imports nothing of nodectl but kernel.identity and the names of values.
"""
