"""What a process of the service sets for itself by prctl(2), and the drop of its capabilities: the half of python-prctl
that is in C.

The other half makes hundreds of functions in Python, for all options and capabilities: 0.15 MiB of the forkserver and
of the listener.
"""

import _prctl  # type: ignore[import-not-found]  # C, of python-prctl

_EVERY = list(range(_prctl.CAP_LAST_CAP + 1))


def set_name(name: str) -> None:
    """Set the name of the calling thread, up to 15 bytes."""
    _prctl.prctl(_prctl.PR_SET_NAME, name)


def set_pdeathsig(signal: int) -> None:
    """Get this signal when the parent ends."""
    _prctl.prctl(_prctl.PR_SET_PDEATHSIG, signal)


def set_child_subreaper(on: int) -> None:
    """Adopt the orphans among the descendants, or no longer."""
    _prctl.prctl(_prctl.PR_SET_CHILD_SUBREAPER, on)


def set_dumpable(on: int) -> None:
    """Permit processes of the same user to trace this process, or no longer."""
    _prctl.prctl(_prctl.PR_SET_DUMPABLE, on)


def set_no_new_privs(on: int) -> None:
    """Gain no privileges by execve(2), for ever."""
    _prctl.prctl(_prctl.PR_SET_NO_NEW_PRIVS, on)


def drop_capabilities() -> None:
    """Clear the effective and the permitted capabilities. Raises OSError."""
    _prctl.set_caps([], [], [], _EVERY, _EVERY, [])
