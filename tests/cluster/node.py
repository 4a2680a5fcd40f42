"""The first process of a node of a bed: the node's slurmd and sshd are its children, and so are orphans. When it ends,
so does all that runs on the node, as when a machine loses its power.

usage: node.py DIRECTORY NAME; a line on stdin says that the cable is there
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cluster import machine, network, sshd
from slurm.daemons import Daemons


def main(here: Path, name: str) -> None:
    """Ends only when it is killed."""
    machine.become(name, here)
    sys.stdin.readline()
    network.open_inside(machine.ADDRESSES[name])
    daemons = Daemons(here)
    sshd.start(daemons, name)
    daemon = daemons.start_node(name)
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except InterruptedError:
            continue
        if pid == daemon.pid:
            sys.exit(f"slurmd of {name} ended: {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
