"""tracer: writes down every hook that is called: where, as whom, and what a plugin is told there.

For administrators who want to know what a stack does to a step, and for authors of plugins who want to know the facts
in each hook. Put it before or behind the plugin in question, or both: it notes the changes of the tasks' environment
since its last call in the same process.

    optional tracer out=/var/log/nodectl/spank.jsonl name=before

The plugin appends to `out` and makes the file if it is missing, for root's eyes only (mode 0600): environments hold
secrets. Root must own the file and every directory of its path, and no other user may write there. The first hook in a
process of root's opens it; forks, and hooks that run as the user, write through that descriptor, which is closed when
the program starts. In a command that is not root's, and without `out`, the step's user sees the lines with -vv instead.
A file that cannot be opened fails the hook; a line that cannot be written is reported and costs nothing. `name`
distinguishes two tracers: it is in argv.

Option: --tracer[=NOTE], noted in each line, so that a run is found again.

One JSON object a line, one write(2) each:

    time, t            seconds since the epoch; monotonic ns
    context, hook      "local", "remote", "allocator", "slurmd", "job_script"; "option" is the option's callback;
                       slurmd_init is called as init
    argv               the arguments in plugstack.conf; of "option": val, optarg, remote
    pid, ppid, cwd, umask, affinity, cgroup
    uids, gids, groups real, effective and saved; supplementary
    caps               CapEff, hexadecimal
    items              each S_* item: [0, value], or [code] as spank_get_item fails here; [0, n] for n variables
    getopt             the result of spank_option_getopt for the plugin's own option: [0, value] or [code]
    environment        "set" {name: value} and "unset" [names] since the last line of this process
"""

import errno
import os
import stat
import time

from nodectl import spank
from nodectl.kernel import trust
from nodectl.model.wire import lean_json
from nodectl.spank import (
    SpankError,
    SpankOption,
    slurm_debug,
    slurm_error,
    spank_context,
    spank_get_item,
    spank_option_getopt,
    spank_option_register,
    spank_remote,
)
from nodectl.spank.handle import Spank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

plugin_type = "spank"
plugin_name = "tracer"
plugin_version = (22, 5, 8)

_CONTEXTS = ("error", "local", "remote", "allocator", "slurmd", "job_script")
_ITEMS = {
    name: value for name, value in vars(spank).items() if name.startswith(("S_JOB_", "S_TASK_", "S_STEP_", "S_SLURM_"))
}
_OF_PID = (spank.S_JOB_PID_TO_GLOBAL_ID, spank.S_JOB_PID_TO_LOCAL_ID)
_OF_ID = (spank.S_JOB_LOCAL_TO_GLOBAL_ID, spank.S_JOB_GLOBAL_TO_LOCAL_ID)
_OPEN = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _State:
    out = ""
    fd = -1
    environment: dict[str, str] | None = None  # at the last line of this process


def _noted(val: int, optarg: str | None, remote: int) -> int:
    """Write a line for --tracer; every value is allowed."""
    return _write("option", {"argv": [val, optarg, remote]})


_OPTION = SpankOption("tracer", "NOTE", "Have NOTE in every line of the SPANK tracer.", 2, 7, _noted)


def _open() -> None:
    """Open `out`, as root. Raises OSError, trust.Untrusted."""
    trust.check(os.path.dirname(_State.out))
    fd = os.open(_State.out, _OPEN, 0o600)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise OSError(errno.EPERM, "is no file that only root may write")
    _State.fd = fd


def _record(sp: Spank, hook: str, argv: list[str]) -> int:
    """Write the line of a hook. Return 0, or -1 for a wrong argument or an unusable file."""
    for word in argv:
        name, _, value = word.partition("=")
        if name == "out" and value.startswith("/"):
            _State.out = value
        elif name != "name":
            slurm_error(f"tracer: {word!r} in plugstack.conf is neither out=/PATH nor name=WORD")
            return -1
    return _write(
        hook,
        {
            "argv": argv,
            "items": {name: _item(sp, item) for name, item in _ITEMS.items()},
            "getopt": _answer(lambda: spank_option_getopt(sp, _OPTION)),
            "environment": _changes(sp),
        },
    )


def _item(sp: Spank, item: int) -> list[object]:
    argument = os.getpid() if item in _OF_PID else 0 if item in _OF_ID else None
    if item in _OF_PID and (pid := _answer(lambda: spank_get_item(sp, spank.S_TASK_PID)))[0] == 0:
        argument = pid[1]  # type: ignore[assignment]  # this item's value is a number
    return _answer(lambda: spank_get_item(sp, item, argument))


def _answer(ask: "Callable[[], object]") -> list[object]:
    """Return [0, value], or [code] for a failed SPANK function."""
    try:
        value = ask()
    except SpankError as error:
        return [error.code]
    return [0, len(value) if isinstance(value, dict) else value]


def _changes(sp: Spank) -> dict[str, object]:
    """Return the changes of the tasks' environment since this process's last line; none for the first line."""
    if not spank_remote(sp):
        return {}
    now = spank_get_item(sp, spank.S_JOB_ENV)
    assert isinstance(now, dict)  # noqa: S101  # of this item always
    before = now if _State.environment is None else _State.environment
    _State.environment = dict(now)
    return {
        "set": {name: value for name, value in now.items() if before.get(name) != value},
        "unset": [name for name in before if name not in now],
    }


def _write(hook: str, facts: dict[str, object]) -> int:
    """Add the facts of the process to `facts` and write the line."""
    if _State.fd < 0 and os.geteuid() == 0 and _State.out:
        try:
            _open()
        except (OSError, trust.Untrusted) as error:
            slurm_error(f"tracer: {_State.out}: {getattr(error, 'strerror', None) or error}")
            return -1
    head = {"time": time.time(), "t": time.monotonic_ns(), "context": _CONTEXTS[spank_context()], "hook": hook}
    line = lean_json.dumps({**head, **facts, **_process()})
    if _State.fd < 0:
        slurm_debug(f"tracer: {line}")
        return 0
    try:
        os.write(_State.fd, f"{line}\n".encode("ascii"))
    except OSError as error:
        slurm_error(f"tracer: {_State.out}: {error.strerror}")
    return 0


def _process() -> dict[str, object]:
    """Return ids, directory, capabilities, CPUs and cgroup of this process, from the kernel."""
    status = dict(line.split(":\t", 1) for line in _lines("/proc/self/status") if ":\t" in line)
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    return {
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "uids": list(os.getresuid()),
        "gids": list(os.getresgid()),
        "groups": os.getgroups(),
        "caps": status.get("CapEff", ""),
        "cwd": cwd,
        "umask": status.get("Umask", ""),
        "affinity": sorted(os.sched_getaffinity(0)),
        "cgroup": next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::")), ""),
    }


def _lines(path: str) -> list[str]:
    """Return the lines of a small file of the kernel; without Python's file objects, which are slow after a fork."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(fd, 65536)).split("\n")
    finally:
        os.close(fd)


def slurm_spank_init(sp: Spank, ac: int, argv: list[str]) -> int:
    """Register the option and record the hook. Command, stepd, daemon."""
    spank_option_register(sp, _OPTION)
    return _record(sp, "slurm_spank_init", argv)


def slurm_spank_init_post_opt(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. Command, stepd."""
    return _record(sp, "slurm_spank_init_post_opt", argv)


def slurm_spank_local_user_init(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. Command, after the job's allocation."""
    return _record(sp, "slurm_spank_local_user_init", argv)


def slurm_spank_user_init(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. Stepd, with the user's effective ids."""
    return _record(sp, "slurm_spank_user_init", argv)


def slurm_spank_task_init_privileged(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. Each task, as root."""
    return _record(sp, "slurm_spank_task_init_privileged", argv)


def slurm_spank_task_post_fork(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. Stepd, as root, for each task."""
    return _record(sp, "slurm_spank_task_post_fork", argv)


def slurm_spank_task_init(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. Each task, as the user."""
    return _record(sp, "slurm_spank_task_init", argv)


def slurm_spank_task_exit(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. Stepd, as root, for each ended task."""
    return _record(sp, "slurm_spank_task_exit", argv)


def slurm_spank_exit(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. Command, stepd."""
    return _record(sp, "slurm_spank_exit", argv)


def slurm_spank_job_prolog(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. A separate process, as root, before the job's first step."""
    return _record(sp, "slurm_spank_job_prolog", argv)


def slurm_spank_job_epilog(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. A separate process, as root, after the job's end."""
    return _record(sp, "slurm_spank_job_epilog", argv)


def slurm_spank_slurmd_exit(sp: Spank, ac: int, argv: list[str]) -> int:
    """Record the hook. Daemon, as root, at the daemon's end."""
    return _record(sp, "slurm_spank_slurmd_exit", argv)
