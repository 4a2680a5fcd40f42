"""How a service is started here, for who finds none."""

from os import path

_SYSTEMD = "/run/systemd/system"  # sd_booted(3)


def start_command(*, own: bool = False) -> str:
    """What root types to start the service here, or anybody to start their own."""
    if own:
        return "nodectl --user daemon"
    return "systemctl start nodectld" if path.exists(_SYSTEMD) else "nodectl daemon"
