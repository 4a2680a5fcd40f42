"""The memory and CPUs of the nodes at the last start of the service, to find nodes with changes.

A file in the service's own directory, in the daemon as root; where it cannot be read or written nothing has changed.
"""

from __future__ import annotations

import contextlib
import json
import os

from nodectl.selection.records import NodeTable

_NAME = "select_nodes.json"
_LARGEST = 1 << 20
_MOST_NODES = 1024


def changed(directory: str, nodes: NodeTable) -> list[int]:
    """Return the indices of known nodes with changed memory or CPUs, and write down the present values."""
    if len(nodes) > _MOST_NODES:
        return []
    have = {node.name: [node.real_memory, node.cpus] for node in nodes}
    before = _read(os.path.join(directory, _NAME))
    if have != before:
        _write(os.path.join(directory, _NAME), have)
    return [node.index for node in nodes if before.get(node.name, have[node.name]) != have[node.name]]


def _read(path: str) -> dict[str, object]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(file, "rb") as opened:
            found = json.loads(opened.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: str, have: dict[str, list[int]]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        with open(os.open(f"{path}.new", flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(have, file)
        os.replace(f"{path}.new", path)
