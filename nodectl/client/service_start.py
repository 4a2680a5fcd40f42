"""The command to start a service, for a user without a running service."""

import os
from os import path

from nodectl.model.config import own_node

_SYSTEMD = "/run/systemd/system"  # sd_booted(3)


def start_command(*, own: bool = False) -> str:
    """Return the command for root to start the service here; with `own`, for any user to start the user's own node."""
    if own:
        return "nodectl --user daemon"
    return "systemctl start nodectld" if path.exists(_SYSTEMD) else "nodectl daemon"


def how_to_start(*, own: bool, private: bool) -> str:
    """Return what the user can do without a service. `private`: root's command would have a node for itself."""
    start = f"`{start_command(own=own)}`"
    if own or os.geteuid() == 0:
        return f"start it with {start}"
    if _own_node_is_there():
        return f"root starts it with {start}; your own node answers `nodectl --user`"
    alone = (
        "`nodectl --user` gives this command a node of your own" if private else "`nodectl --user daemon` is your own"
    )
    return f"root starts it with {start}; {alone}"


def _own_node_is_there() -> bool:
    try:
        return path.exists(f"{own_node.runtime_dir()}/nodectl.sock")
    except own_node.NotOurs:
        return False
