"""SPANK in the releases of Slurm: the functions for plugins and the hooks called by Slurm.

Facts of the documented interface: the functions of the 22.05 header, and in `_ADDED` later functions with their
release. Slurm promises nothing about other functions of its library from one release to the next, so this module does
not either.
"""

from nodectl.model.launch_order import SPANK_SLURMD_INIT

RELEASES = ("22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")

_FUNCTIONS = frozenset({
    "spank_context", "spank_get_item", "spank_getenv", "spank_job_control_getenv", "spank_job_control_setenv",
    "spank_job_control_unsetenv", "spank_option_getopt", "spank_option_register", "spank_remote", "spank_setenv",
    "spank_strerror", "spank_symbol_supported", "spank_unsetenv",
    "slurm_debug", "slurm_debug2", "slurm_debug3", "slurm_error", "slurm_info", "slurm_spank_log", "slurm_verbose",
})  # fmt: skip
_ADDED = {"spank_prepend_task_argv": "23.11"}
_ADDED_DATA = {"slurm_spank_init_failure_mode": "25.05"}

_SEEN = "22.05"
_HOOKS = frozenset(
    f"slurm_spank_{name}"
    for name in (
        "init", "init_post_opt", "local_user_init", "user_init", "task_init_privileged", "task_init", "task_post_fork",
        "task_exit", "exit", "job_prolog", "job_epilog", "slurmd_exit",
    )
)  # fmt: skip


def has_function(release: str, name: str) -> bool | None:
    """Return whether a release lets plugins call the function; None where the documents do not say."""
    if name in _ADDED:
        return _number(release) >= _number(_ADDED[name])
    if name in _FUNCTIONS:
        return True
    return False if name.startswith("spank_") else None


def is_documented(name: str) -> bool:
    """Return True for a function of SPANK's documented interface in any release."""
    return name in _FUNCTIONS or name in _ADDED


def has_hook(release: str, name: str) -> bool | None:
    """Return whether a release calls the hook; all releases call the same hooks, except slurmd_init.

    The documents have no slurmd_init since 20.02; 22.05 was seen to call it still, later releases are unknown (None).
    """
    if name == SPANK_SLURMD_INIT.call:
        return True if release == _SEEN else None
    return name in _HOOKS


def news(release: str) -> list[str]:
    """Return the additions to spank.h between 22.05 and a release, each with the first release."""
    added = sorted({**_ADDED, **_ADDED_DATA}.items(), key=lambda row: _number(row[1]))
    return [f"{name} ({since})" for name, since in added if _number(since) <= _number(release)]


def spell(version: tuple[int, ...]) -> str:
    """Return a version in Slurm's form: 22.05.8 for (22, 5, 8)."""
    return ".".join([release_of(version), *map(str, version[2:])]) if len(version) > 1 else ""


def release_of(version: tuple[int, ...]) -> str:
    """Return the release of a version in Slurm's form: 22.05 for (22, 5, 8)."""
    return f"{version[0]}.{version[1]:02d}"


def unpack(number: int) -> tuple[int, int, int]:
    """Return the three numbers in a plugin_version of C: 8 bits each, the micro number lowest."""
    return number >> 16 & 0xFF, number >> 8 & 0xFF, number & 0xFF


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
