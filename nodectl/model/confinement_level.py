"""The levels of a step's confinement beyond the user's rights, and the choice of a step's level.

`none` is a process as from a login shell. `default` removes what no job needs: no_new_privs, capabilities that are not
about files and processes, system calls that reach into the kernel (`confine/denied_calls.py`). `strict` also removes
every capability, namespaces, and writing anywhere but in the working directory and the temporary directories. Pure.
"""

LEVELS = NONE, DEFAULT, STRICT = ("none", "default", "strict")  # each holds what the one before it does, and more


def strictest(*levels: str) -> str:
    """Return the highest of the levels."""
    return max(levels, key=LEVELS.index)


def is_below(level: str, other: str) -> bool:
    """Return True if `level` confines less than `other`."""
    return LEVELS.index(level) < LEVELS.index(other)
