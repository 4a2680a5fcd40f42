"""The version in a plugin: the spelling, and whether the version fits.

Pure functions of values, for the loader and for commands that only read a file.
"""

from nodectl.plugin_api import API_VERSION, SLURM_VERSION_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.plugin_host.kinds import Kind

_LEAST, _MOST = 1 << 16, 0xFFFFFF  # of SLURM_VERSION_NUMBER


def read_version(said: object, kind: "Kind") -> tuple[int, ...]:
    """Return the version in a plugin's notation: three numbers, a number as in slurm.h, or the interface's number.

    Raises ValueError.
    """
    if isinstance(said, tuple) and [type(number) for number in said] == [int, int, int]:
        return (said[0], said[1], said[2])
    if type(said) is int and kind.interface and said == kind.interface:
        return (said,)
    if type(said) is int and _LEAST <= said <= _MOST:
        return (said >> 16, said >> 8 & 255, said & 255)
    wanted = f"three numbers like {API_VERSION}, or {SLURM_VERSION_NUMBER:#08x}, are needed"
    raise ValueError(f"plugin_version is {said!r}; {wanted}")


def differs(version: tuple[int, ...], kind: "Kind") -> str:
    """Return why a plugin of this kind and version does not fit, "" for a fitting version."""
    ours = API_VERSION[: kind.compared]
    if version[: kind.compared] == ours or version == (kind.interface,):
        return ""
    return f"written for version {'.'.join(map(str, version))}; this is {'.'.join(map(str, ours))}"
