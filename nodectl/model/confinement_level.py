"""How far what a step runs is confined beyond its user's rights: the levels, and which one a step gets.

`none` is a process as from a login shell. `default` takes what no job needs: no_new_privs, capabilities that are not
about files and processes, system calls that reach into the kernel (`confine/denied_calls.py`). `strict` also takes
every capability, namespaces, and writing anywhere but in the working directory and the temporary ones. Pure.
"""

LEVELS = NONE, DEFAULT, STRICT = ("none", "default", "strict")  # each holds what the one before it does, and more


def strictest(*levels: str) -> str:
    """The highest of the levels."""
    return max(levels, key=LEVELS.index)


def is_below(level: str, other: str) -> bool:
    """True when `level` confines less than `other`."""
    return LEVELS.index(level) < LEVELS.index(other)
