"""Values for every process and any user: a step, a plugin of the stack, a level of confinement, CPU lists.

Also the order of a launch, numbers, and the door for features. Imports from nodectl only `kernel.identity`, the
identity of a step's user.
"""
