"""The sshd of a node of a bed, with a host key of its own. It knows public keys and passwords, and no user of a bed has
a password.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from slurm.daemons import Daemons

PACKAGES = ("openssh-server", "openssh-client")
_EMPTY = Path("/run/sshd")  # what it wants for those who have not proven themselves
_CONFIG = """\
HostKey {key}
PidFile none
UsePAM no
PubkeyAuthentication yes
PasswordAuthentication yes
KbdInteractiveAuthentication no
AuthorizedKeysFile .ssh/authorized_keys
"""


def start(daemons: Daemons, node: str) -> None:
    """On the node itself; it may not serve yet when this returns."""
    key, config = _key(daemons.here, node), daemons.here / f"sshd.{node}.conf"
    if not key.exists():
        words = [f"{daemons.root}/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, env=daemons.environment)
    config.write_text(_CONFIG.format(key=key), encoding="utf-8")
    _EMPTY.mkdir(mode=0o755)
    daemons.start("sshd", "-D", "-e", "-f", str(config))


def known(here: Path, node: str) -> str:
    """The line of a node's key in a known_hosts; `here` is the bed's directory."""
    return f"{node} {_key(here, node).with_suffix('.key.pub').read_text(encoding='ascii')}"


def _key(here: Path, node: str) -> Path:
    return here / f"sshd.{node}.key"
