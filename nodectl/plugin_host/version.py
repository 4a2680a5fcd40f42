"""The version that a plugin says it was written for: how it may be spelt, and whether it fits.

Pure functions of values, for the loader and for who only looks at a file.
"""

from nodectl.plugin_api import API_VERSION, SLURM_VERSION_NUMBER

UNVERSIONED = ("task",)
"""Kinds whose document lets a plugin leave plugin_version out."""

INTERFACES = {"job_container": 101}
"""The version of a kind's own interface, by which a plugin may be known too."""

_LEAST, _MOST = 1 << 16, 0xFFFFFF  # of SLURM_VERSION_NUMBER


def read_version(said: object, kind: str) -> tuple[int, ...]:
    """The version in a plugin's words: three numbers, or one number as SLURM_VERSION_NUMBER of slurm.h, or that of its
    kind's interface. Raises ValueError.
    """
    if isinstance(said, tuple) and [type(number) for number in said] == [int, int, int]:
        return (said[0], said[1], said[2])
    if type(said) is int and said == INTERFACES.get(kind):
        return (said,)
    if type(said) is int and _LEAST <= said <= _MOST:
        return (said >> 16, said >> 8 & 255, said & 255)
    wanted = f"three numbers like {API_VERSION}, or {SLURM_VERSION_NUMBER:#08x}, are needed"
    raise ValueError(f"plugin_version is {said!r}; {wanted}")


def differs(version: tuple[int, ...], kind: str) -> str:
    """Why a plugin of this kind that says so is not for this nodectl, "" where it is."""
    # Bug-fix releases do not change what SPANK plugins see, so that these need not match in the third.
    compared = 2 if kind == "spank" else 3
    if version[:compared] == API_VERSION[:compared] or version == (INTERFACES.get(kind),):
        return ""
    return f"written for version {'.'.join(map(str, version))}; this is {'.'.join(map(str, API_VERSION[:compared]))}"
