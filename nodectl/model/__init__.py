"""Values that every process uses, as any user: a step, a plugin of its stack, a level of confinement, the order of a
launch, numbers and lists of CPUs.

Imports nothing of nodectl but `kernel.identity`, which says who a step's user is.
"""
