"""--hint beside options which say the same more precisely: the hint has no effect then, and the user is warned."""

import os
from typing import TYPE_CHECKING

from nodectl.client.command import Program

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLOSER = frozenset({"extra_node_info", "ntasks_per_core", "threads_per_core"})
_TOLD_ONLY = frozenset({"v", "verbose", "q", "quiet"})  # words of --cpu-bind that bind nothing


def tell_conflict(values: "Mapping[str, object]") -> None:
    """Warn if --hint has no effect."""
    closer = sorted(name.replace("_", "-") for name in _CLOSER & values.keys())
    if set(str(values.get("cpu_bind", "quiet")).lower().split(",")) - _TOLD_ONLY:
        closer.append("cpu-bind")
    if not closer or Program.quiet:
        return
    text = f"--hint has no effect beside --{', --'.join(closer)}"
    os.write(2, f"{Program.name}: {text}\n".encode())
