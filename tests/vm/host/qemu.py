"""QEMU: which CPUs the machine has, whether KVM works here, one run from power-on to power-off."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vm.host.image import Image

TRIAL_SECONDS = 5
_TOPOLOGY = re.compile(r"([1-9]\d*)s([1-9]\d*)c([1-9]\d*)t([1-9]\d*)n")
_REMOTE = 21  # the distance of two memory nodes
_TCG, _KVM = "tcg,thread=multi,tb-size=256", "kvm"
# Siblings show only with an Intel model when CPUs are emulated.
_MODELS = {_TCG: "Skylake-Server", _KVM: "host"}
KERNEL_PARAMETERS = (
    "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 net.ifnames=0 mitigations=off nokaslr audit=0 "
    "norandmaps "  # an emulated CPU translates a program anew for each place that it is at
    "apparmor=0 cryptomgr.notests random.trust_cpu=on rcupdate.rcu_expedited=1 psi=1 nowatchdog "
    "panic=-1 "  # a reset, which the machine tells of
    "unknown_nmi_panic panic_print=0x41"  # what every task and CPU does, when a debugger asks
)
CLOCK_PARAMETERS = "clocksource=tsc tsc=reliable no_timer_check"  # an emulated clock does not pass the kernel's doubts


@dataclass(frozen=True)
class Topology:
    """`cores` in each of the sockets, `threads` in each core, memory `nodes` over all."""

    sockets: int
    cores: int
    threads: int
    nodes: int

    @property
    def cpus(self) -> int:
        """How many there are."""
        return self.sockets * self.cores * self.threads

    @classmethod
    def parse(cls, text: str) -> Topology:
        """Of `2s4c2t2n`. Raises ValueError."""
        match = _TOPOLOGY.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no topology; one is 2s4c2t2n: sockets, cores, threads, memory nodes")
        made = cls(*map(int, match.groups()))
        if made.cpus % made.nodes:
            raise ValueError(f"{text}: {made.cpus} CPUs do not divide into {made.nodes} memory nodes")
        return made

    def __str__(self) -> str:
        return f"{self.sockets}s{self.cores}c{self.threads}t{self.nodes}n"


@dataclass(frozen=True)
class Machine:
    """What is booted: memory in MiB, split evenly over the nodes."""

    image: Image
    topology: Topology
    memory: int

    def boot(
        self, accelerator: str, *, parameters: str = "", disks: tuple[str, ...] = (), console: str, line: str = "",
        debugger: str = "", kept: str = "",
    ) -> list[str]:  # fmt: skip
        """QEMU's words. The console and a second serial line are files, to which it adds; disks are `file=...` of raw
        images, vdb and on. QEMU makes the debugger's socket.

        What is written to vda is forgotten, unless it is `kept`, a copy of the image's disk. A reset of the machine
        ends QEMU, as its power-off does: the next boot is another process's, with nothing left of this one.
        """
        top = self.topology
        smp = f"{top.cpus},sockets={top.sockets},cores={top.cores},threads={top.threads}"
        clock = CLOCK_PARAMETERS if accelerator == _TCG else ""
        words = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
                 "-machine", "q35,usb=off,graphics=off,vmport=off,hpet=off,smm=off",
                 "-accel", accelerator, "-cpu", _MODELS[accelerator], "-smp", smp, "-m", f"{self.memory}M",
                 "-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd),
                 "-append", f"{KERNEL_PARAMETERS} {clock} {parameters}",
                 "-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console",
                 "-device", "virtio-rng-pci", "-action", "reboot=shutdown", *self._nodes()]  # fmt: skip
        if line:
            words += ["-chardev", f"file,id=line,path={line},append=on", "-serial", "chardev:line"]
        if debugger:
            words += ["-gdb", f"unix:{debugger},server=on,wait=off"]
        first = f"file={kept}" if kept else f"file={self.image.disk},snapshot=on"
        for disk in (f"{first},cache=unsafe", *disks):
            words += ["-drive", f"{disk},format=raw,if=virtio"]
        return words

    def _nodes(self) -> Iterator[str]:
        nodes = self.topology.nodes
        cpus = self.topology.cpus // nodes
        for node in range(nodes):
            yield from ("-object", f"memory-backend-ram,id=ram{node},size={self.memory // nodes}M")
            yield from ("-numa", f"node,nodeid={node},memdev=ram{node},cpus={node * cpus}-{(node + 1) * cpus - 1}")
        for one in range(nodes):
            for other in range(one + 1, nodes):
                yield from ("-numa", f"dist,src={one},dst={other},val={_REMOTE}")

    def accelerator(self) -> str:
        """KVM where a machine that only powers itself off does so in a few seconds; /dev/kvm alone proves nothing."""
        if not os.access("/dev/kvm", os.R_OK | os.W_OK):
            return _TCG
        trial = self.boot(_KVM, parameters="ring.trial", console="/dev/null")
        return _KVM if run(trial, TRIAL_SECONDS).wait() == 0 else _TCG


def run(words: list[str], seconds: float, log: Path = Path("/dev/null"), nice: int = 0) -> subprocess.Popen[bytes]:
    """Starts QEMU under timeout(1), which ends it in time, status 124; and when this process has gone.

    It ends with timeout, too, which told to end in the moment of its fork forgets whom it has begun. Its nice value is
    also that of its session, which where the kernel groups processes by sessions is what counts (sched(7)).
    """
    when_alone = ["setpriv", "--pdeathsig"]
    favoured = ["nice", "-n", str(nice)]
    in_time = ["timeout", "--kill-after=5", str(seconds)]
    guards = [*when_alone, "TERM", *favoured, *in_time, *when_alone, "KILL"]
    with log.open("wb") as out:
        started = subprocess.Popen(
            [*guards, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    with suppress(OSError):  # there may be no such groups
        Path(f"/proc/{started.pid}/autogroup").write_text(str(nice), encoding="ascii")
    return started


def end(started: subprocess.Popen[bytes]) -> None:
    """Ends QEMU, if it runs; also one that stands still."""
    if started.poll() is None:
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
