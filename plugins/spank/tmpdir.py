"""tmpdir: a temporary directory of its own for each step, named by TMPDIR and removed when the step ends.

In plugstack.conf, here with the defaults:

    required tmpdir base=/tmp mode=0700 when=always

`base`, given without links, must belong to root, and so must every directory above it; other users may write there only
if it is sticky, as /tmp is. `mode` is the directory's. With `when=asked` only steps run with the option --tmpdir have a
directory.

The directory is BASE/nodectl-tmpdir.JOB.STEP.RANDOM/tmp. The outer directory belongs to root, so that the user can
neither rename nor replace the inner directory, which belongs to the user. All tasks of the step share it.

Hooks: init (arguments; a wrong one fails), init_post_opt (stepd, root: makes the directory, sets TMPDIR), exit (stepd,
root: removes the directory, however the step ended, with everything below; follows neither links nor mounts). A removal
that takes longer than 50 s is reported. A killed stepd or an unfinished removal leaves a directory whose lock is free:
the exit of the next step with this plugin and base removes the directory, and so does a start of the daemon. To find
such directories, they read at most 4096 names of `base`: on a machine with a full /tmp give the plugin a base of its
own.
"""

import errno
import fcntl
import os
import stat
import time

from nodectl.kernel.tree_removal import open_below, remove
from nodectl.spank import (
    S_CTX_SLURMD,
    S_JOB_GID,
    S_JOB_ID,
    S_JOB_STEPID,
    S_JOB_UID,
    SpankOption,
    slurm_error,
    slurm_verbose,
    spank_context,
    spank_get_item,
    spank_remote,
    spank_setenv,
)
from nodectl.spank.handle import Spank

plugin_type = "spank"
plugin_name = "tmpdir"
plugin_version = (22, 5, 8)

_PREFIX = "nodectl-tmpdir."
_INNER = "tmp"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PATIENCE = 50.0  # seconds for the step's own directory: less than a hook may take
_SWEEP_PATIENCE = 2.0  # for directories of dead steps: the end of another step waits
_MOST_NAMES = 4096


class _State:
    base = "/tmp"
    mode = 0o700
    always = True
    asked = False
    name = ""
    base_fd = -1
    outer_fd = -1  # locked while the step lives


def _option(val: int, optarg: str | None, remote: int) -> int:
    """Note the option --tmpdir."""
    _State.asked = True
    return 0


spank_options = [SpankOption("tmpdir", None, "Have a private temporary directory, named by TMPDIR.", 0, 0, _option)]


def _argument(word: str) -> None:
    """Read a word of plugstack.conf. Raises ValueError with the reason."""
    name, _, value = word.partition("=")
    if name == "base":
        if not value.startswith("/"):
            raise ValueError("is no absolute path")
        _State.base = value.rstrip("/") or "/"
    elif name == "mode":
        mode = int(value, 8) if value.isdigit() and not set(value) - set("01234567") else -1
        if mode & ~0o1777 or mode & 0o700 != 0o700:
            raise ValueError("is not a mode from 0700 to 1777")
        _State.mode = mode
    elif word in ("when=always", "when=asked"):
        _State.always = value == "always"
    else:
        raise ValueError("is unknown")


def slurm_spank_init(sp: Spank, ac: int, argv: list[str]) -> int:
    """Read the arguments. In the daemon, as root, also remove the directories of dead steps."""
    good = True
    for word in argv:
        try:
            _argument(word)
        except ValueError as error:
            slurm_error(f"tmpdir: {word!r} in plugstack.conf {error}")
            good = False
    if good and spank_context() == S_CTX_SLURMD:
        try:
            base = _open_base()
        except OSError as error:
            slurm_error(f"tmpdir: {_State.base}: {error.strerror}")
            return -1
        _sweep(base)
        os.close(base)
    return 0 if good else -1


def slurm_spank_init_post_opt(sp: Spank, ac: int, argv: list[str]) -> int:
    """Make the directory and set TMPDIR for the tasks. Stepd, root."""
    if not spank_remote(sp) or not (_State.always or _State.asked):
        return 0
    uid, gid = spank_get_item(sp, S_JOB_UID), spank_get_item(sp, S_JOB_GID)
    assert isinstance(uid, int)  # noqa: S101  # of these items always
    assert isinstance(gid, int)  # noqa: S101
    try:
        _State.base_fd = _open_base()
        _make_outer(f"{_PREFIX}{spank_get_item(sp, S_JOB_ID)}.{spank_get_item(sp, S_JOB_STEPID)}")
        os.mkdir(_INNER, 0o700, dir_fd=_State.outer_fd)
        inner = os.open(_INNER, _DIRECTORY, dir_fd=_State.outer_fd)
        try:
            os.fchown(inner, uid, gid)
            os.fchmod(inner, _State.mode)
        finally:
            os.close(inner)
    except OSError as error:
        slurm_error(f"tmpdir: make a directory in {_State.base}: {error.strerror}")
        return -1
    spank_setenv(sp, "TMPDIR", f"{_State.base.rstrip('/')}/{_State.name}/{_INNER}")
    return 0


def slurm_spank_exit(sp: Spank, ac: int, argv: list[str]) -> int:
    """Remove the step's directory, then the directories of dead steps. Stepd, root."""
    if not spank_remote(sp) or _State.base_fd < 0:
        return 0
    why = ""
    if _State.outer_fd >= 0:
        why = remove(_State.base_fd, _State.outer_fd, _State.name, time.monotonic() + _PATIENCE)
        os.close(_State.outer_fd)
        if why:
            slurm_error(f"tmpdir: remove {_State.base}/{_State.name}: {why}")
    _sweep(_State.base_fd)
    os.close(_State.base_fd)
    return -1 if why else 0


def _open_base() -> int:
    """Return a descriptor of `base`, after checking the path for changes by users other than root. Raises OSError."""
    fd = os.open("/", _DIRECTORY)
    names = [name for name in _State.base.split("/") if name]
    try:
        for name in names:
            below = os.open(name, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
            status = os.fstat(fd)
            if status.st_uid != 0:
                raise OSError(errno.EPERM, f"{name!r} on the way belongs to uid {status.st_uid} and not to root")
            if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
                raise OSError(errno.EPERM, f"{name!r} on the way is writable by others, and not sticky")
    except OSError:
        os.close(fd)
        raise
    return fd


def _make_outer(stem: str) -> None:
    """Make and lock the outer directory under a new random name. Raises OSError."""
    while _State.outer_fd < 0:
        _State.name = f"{stem}.{os.urandom(6).hex()}"
        os.mkdir(_State.name, 0o711, dir_fd=_State.base_fd)
        try:
            fd = os.open(_State.name, _DIRECTORY, dir_fd=_State.base_fd)
        except FileNotFoundError:
            continue  # a sweep of another step came between
        if _lock(fd):
            _State.outer_fd = fd
        else:
            os.close(fd)


def _lock(fd: int) -> bool:
    """Lock the directory; return False if a living stepd or a sweep holds the lock or if the directory is gone."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(fd).st_nlink > 0


def _sweep(base: int) -> None:
    """Remove the directories of dead steps, for at most _SWEEP_PATIENCE seconds."""
    end = time.monotonic() + _SWEEP_PATIENCE
    with os.scandir(base) as entries:
        names = [entry.name for entry, _ in zip(entries, range(_MOST_NAMES), strict=False)]
    for name in names:
        if not name.startswith(_PREFIX):
            continue
        try:
            fd = open_below(base, name)
        except OSError:
            continue  # it has just gone, or another user made it as a trick: a link, or a file system of their own
        status = os.fstat(fd)
        if status.st_uid == 0 and not status.st_mode & _OTHERS_WRITE and _lock(fd):
            why = remove(base, fd, name, end)
            slurm_verbose(f"tmpdir: remove {_State.base}/{name} of a dead step: {why or 'done'}")
        os.close(fd)
