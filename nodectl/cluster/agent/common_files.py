"""Files shared by the tasks of all nodes: -i, -o and -e without %t, %n and %N in the name.

The files are on the client's node, which need not share its disks with the other nodes. A node that truncates an output
file, as a step on one node does, would delete the output of the other nodes' tasks. The files are therefore carried as
streams, as without these options: the agent of the client's node opens them, as srun does, once the step has its
number. The agent runs as the step's user.
"""

import os
import pwd
from collections.abc import Mapping
from typing import Any

from nodectl.kernel import user_path
from nodectl.launch.streams import filename
from nodectl.launch.streams.stdio import ERR, IN, OUT
from nodectl.model.step import Step

_SENT, _NAMES = "all", {IN: "stdin", OUT: "stdout", ERR: "stderr"}
_DEVICES = "/dev/"  # each node's own, which cannot be truncated
_USUAL_UMASK = 0o022


class CommonFiles:
    """The shared files of a request. `request`: the request for the nodes."""

    __slots__ = ("_asked", "_patterns", "request")

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Read an unchecked request."""
        self._asked = request
        self._patterns = _common(request)
        self.request = {**request, **{_NAMES[number]: _SENT for number in self._patterns}}

    def open_into(self, fds: list[int], key: tuple[int, int]) -> None:
        """Replace the client's streams by the files. Raises OSError with the file's name."""
        paths: dict[str, int] = {}
        for number, pattern in self._patterns.items():
            path = filename.expand(pattern, self._step(pattern, *key), 0)
            if number == IN:
                fd = user_path.open_file(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
            else:
                fd = paths[path] = os.dup(paths[path]) if path in paths else self._opened(path)
            os.close(fds[number])
            fds[number] = fd

    def _step(self, pattern: str, job: int, step: int) -> Step:
        """Return a Step with the fields used in file names."""
        asked = self._asked
        user = pwd.getpwuid(os.geteuid()).pw_name if "u" in pattern else ""
        name = asked.get("name") or os.path.basename(asked["argv"][0])
        return Step.from_json({"job_id": job, "step_id": step, "cwd": asked["cwd"], "name": name, "user_name": user})

    def _opened(self, path: str) -> int:
        keeps = 0 if self._asked.get("open_append") else os.O_TRUNC
        before = os.umask(self._asked.get("umask", _USUAL_UMASK))
        try:
            # A FIFO without a reader is an error: the agent must not wait.
            return user_path.open_file(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK | keeps
            )
        finally:
            os.umask(before)


def _common(request: Mapping[str, Any]) -> dict[int, str]:
    """Return the name pattern of each stream for a shared file."""
    given = {number: request.get(name) or "" for number, name in _NAMES.items()}
    if request.get("bulk") or not all(isinstance(pattern, str) for pattern in given.values()):
        return {}
    found: dict[int, str] = given
    found[ERR] = found[ERR] or found[OUT]  # by default stderr goes where stdout goes
    return {number: pattern for number, pattern in found.items() if _is_common(pattern, request.get("ntasks"))}


def _is_common(pattern: str, ntasks: object) -> bool:
    is_task = pattern.isdecimal() and (not isinstance(ntasks, int) or int(pattern) < ntasks)
    is_stream = pattern in ("", "all", "-", "none") or is_task
    return not is_stream and not pattern.startswith(_DEVICES) and not filename.per_node(pattern)
