"""nodectl's service on all three machines, as root runs it beside Slurm."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from vm import service
from vm.nodes import remote
from vm.nodes.allocation import NODES, SCOPE

_CONFIG = "/etc/nodectl/nodectl.toml"
_BEGIN = """
mkdir -p /etc/nodectl && echo 'slurm_scope = "{scope}"
node_name = "{node}"
' >{config}
run="systemd-run --quiet --slice=nodectl.slice --property=Delegate=yes"
$run --unit=nodectl-steps.service sleep infinity
$run --unit=nodectld.service --property=KillMode=process --property=RuntimeDirectory=nodectl \
    --property=RuntimeDirectoryPreserve=yes --property=StateDirectory=nodectl --property=Restart=on-failure \
    /opt/nodectl/bin/nodectl daemon
"""
_END = "systemctl stop nodectld.service nodectl-steps.service; rm -rf /etc/nodectl /run/nodectl /var/lib/nodectl"


@contextlib.contextmanager
def everywhere() -> Iterator[None]:
    """For as long as the context lasts."""
    try:
        for node in NODES:
            text = _BEGIN.format(scope=SCOPE.format(node="%n"), node=node, config=_CONFIG)
            done = remote.run(node, "sh", "-ec", text)
            assert done.returncode == 0, done
        service.wait_until(lambda: all(map(_answers, NODES)), "the service answers everywhere")
        yield
    finally:
        for node in NODES:
            remote.run(node, "sh", "-c", _END)


def _answers(node: str) -> bool:
    return remote.run(node, "/opt/nodectl/bin/nodectl", "ps").returncode == 0
