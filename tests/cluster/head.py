"""The head of a bed, the first process of all that runs there: munge, slurmctld, bridge and nodes, with which it ends.

usage: head.py DIRECTORY

When all nodes are idle it writes "ready". Then each line on stdin is an order, which it answers with a line: `kill n2`
(the machine loses its power), `boot n2`, `cut n2` (its cable), `mend n2`; `kill slurmctld` (by SIGKILL), `boot
slurmctld`. It ends at the end of stdin.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cluster import machine, network
from slurm.daemons import Daemons
from slurm.packages import NoSlurm

# It keeps a node that hangs from a test's way soon, but not one that is merely busy. Steps are told to end, and killed
# some seconds later, by when agents have ended. No process is tracked by cgroups, so what leaves its parent has to end
# by itself.
_CONFIG = """\
ClusterName=bed
SlurmctldHost={head}({address})
SlurmdTimeout=30
MessageTimeout=30
TCPTimeout=5
KillWait=15
InactiveLimit=0
TaskPlugin=task/none
MpiDefault=none
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
LaunchParameters=use_interactive_step
JobCompType=jobcomp/none
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""
CPUS, GPUS = 4, 2


class Head:
    """`here` is the bed's directory, with the packages in its `root`."""

    def __init__(self, here: Path) -> None:
        self._here = here
        self._slurm = Daemons(here)
        self._nodes: dict[str, subprocess.Popen[str]] = {}
        self._controller: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Raises NoSlurm."""
        machine.become(machine.HEAD, self._here)
        network.make_bridge(machine.ADDRESSES[machine.HEAD])
        has = f"CPUs={CPUS} Gres=gpu:{GPUS}"
        nodes = "\n".join(f"NodeName={name} NodeAddr={machine.ADDRESSES[name]} {has}" for name in machine.NODES)
        self._slurm.configure(
            _CONFIG.format(head=machine.HEAD, address=machine.ADDRESSES[machine.HEAD], nodes=nodes),
        )
        for number in range(GPUS):  # any device does: null(4), and what is behind it
            os.mknod(self._here / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3 + number))
        self._slurm.configure_devices(f"Name=gpu File={self._here}/gpu[0-{GPUS - 1}]\n")
        self._slurm.start_munge()
        self._controller = self._slurm.start_controller()
        for name in machine.NODES:
            self.boot(name)
        self._slurm.until(lambda: self._slurm.states() == ["idle"] * len(machine.NODES), "Slurm")

    def boot(self, name: str) -> None:
        """Makes the node, and its cable; or has the controller go on."""
        if name == machine.CONTROLLER:
            self._controller = self._slurm.start_controller(anew=False)
            return
        words = [*machine.APART, sys.executable, "-P", str(Path(__file__).with_name("node.py")), str(self._here), name]
        with (self._here / f"{name}.log").open("ab") as log:
            node = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True)
        self._nodes[name] = node
        network.lay(name, self._first_process(node.pid))
        assert node.stdin is not None
        node.stdin.write("\n")
        node.stdin.flush()

    def kill(self, name: str) -> None:
        """The cable goes with the node's namespace."""
        if name == machine.CONTROLLER:
            assert self._controller is not None
            self._controller.kill()
            self._controller.wait()
            return
        node = self._nodes.pop(name)
        node.kill()
        node.wait()
        network.wait_until_gone(name)

    def cut(self, name: str) -> None:
        network.switch(name, "down")

    def mend(self, name: str) -> None:
        network.switch(name, "up")

    def _first_process(self, unshare: int) -> int:
        """The child of `unshare`, in whose namespaces it is."""
        children = Path(f"/proc/{unshare}/task/{unshare}/children")
        while not (found := children.read_text(encoding="ascii").split()):
            pass
        return int(found[0])


def main(here: Path) -> None:
    """Returns at the end of stdin; whatever is still there ends with this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    head = Head(here)
    try:
        head.begin()
    except NoSlurm as error:
        print(f"there is no Slurm: {' '.join(str(error).split())}", flush=True)
        return
    print("ready", flush=True)
    orders = {"kill": head.kill, "boot": head.boot, "cut": head.cut, "mend": head.mend}
    for line in sys.stdin:
        order, name = line.split()
        orders[order](name)
        print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
