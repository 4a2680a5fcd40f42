"""The command to start a service, for a user without a running service."""

from os import path

_SYSTEMD = "/run/systemd/system"  # sd_booted(3)


def start_command(*, own: bool = False) -> str:
    """Return the command for root to start the service here; with `own`, for any user to start the user's own node."""
    if own:
        return "nodectl --user daemon"
    return "systemctl start nodectld" if path.exists(_SYSTEMD) else "nodectl daemon"
