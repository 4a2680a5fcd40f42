"""systemd's part of the fence: files beside the units of users' slices, which systemd reads at each boot.

A slice user-UID.slice takes the files of user-.slice.d, but a file of its own directory user-UID.slice.d takes the
place of one with the same name: so the users outside of the fence have an empty file. Runs in the command, as root.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping

from nodectl.client import whole_file
from nodectl.client.command import Failed
from nodectl.launch.cgroup.corner import Corner

_DIRECTORY = "/etc/systemd/system"
_NAME = "50-nodectl-fence.conf"
_HEAD = "# Written by `nodectl fence on`; `nodectl fence off` removes it.\n"
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_MODE = 0o644


def texts(corner: Corner) -> dict[str, str]:
    """Return the files of the fence by the unit to which they belong."""
    share = corner.share
    lines = [f"AllowedCPUs={share.cpus}"] if share.cpus else []
    lines += [f"MemoryHigh={share.high}M", f"MemoryMax={share.memory}M"] if share.memory else []
    found = {
        "user.slice": _text([f"CPUWeight={share.weight}", f"IOWeight={share.weight}"]),
        "user-.slice": _text(lines),
    }
    return found | {f"user-{uid}.slice": _HEAD for uid in corner.free}


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in (f"{_HEAD}[Slice]", *lines))


def write(corner: Corner, root: str = _DIRECTORY) -> None:
    """Write the files, remove those of an earlier fence, and have systemd read them. Raises Failed, OSError."""
    wanted = texts(corner)
    _remove([unit for unit in present(root) if unit not in wanted], root)
    for unit, text in sorted(wanted.items(), reverse=True):  # user-UID.slice before user-.slice: root is never fenced
        if present(root).get(unit) == text:
            continue
        if not os.path.isdir(f"{root}/{unit}.d"):
            os.mkdir(f"{root}/{unit}.d")
            os.chmod(f"{root}/{unit}.d", 0o755)  # for `status`, whatever the umask is
            whole_file.sync(root)
        directory = whole_file.open_directory(f"{root}/{unit}.d")
        try:
            whole_file.write(directory, _NAME, _MODE, (text.encode(),), synced=True)
        finally:
            os.close(directory)
    if root == _DIRECTORY:
        _systemctl("daemon-reload")
        _systemctl("start", "user.slice")  # its cgroup takes the wall


def remove(root: str = _DIRECTORY) -> None:
    """Remove the files, and have systemd forget them. Raises Failed, OSError."""
    _remove(present(root), root)
    if root == _DIRECTORY:
        _systemctl("daemon-reload")


def present(root: str = _DIRECTORY) -> Mapping[str, str]:
    """Return the files that are there, by unit. Raises OSError."""
    found = {}
    for entry in os.scandir(root) if os.path.isdir(root) else ():
        unit = entry.name.removesuffix(".d")
        path = f"{root}/{entry.name}/{_NAME}"
        if unit.startswith("user") and unit.endswith(".slice") and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                found[unit] = file.read()
    return found


def _remove(units: Iterable[str], root: str = _DIRECTORY) -> None:
    for unit in sorted(units):  # user-.slice first: root is never fenced
        directory = f"{root}/{unit}.d"
        os.unlink(f"{directory}/{_NAME}")
        for name in os.listdir(directory):
            if name.startswith(f".{_NAME}."):  # of a command that was killed
                os.unlink(f"{directory}/{name}")
        whole_file.sync(directory)
        if not os.listdir(directory):
            os.rmdir(directory)
            whole_file.sync(root)


def _systemctl(*words: str) -> None:
    try:
        done = subprocess.run(
            ["systemctl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env=_ENVIRONMENT,
        )  # fmt: skip
    except FileNotFoundError:
        raise Failed("systemctl: not found, although systemd runs here") from None
    if done.returncode:
        raise Failed(f"systemctl {' '.join(words)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
