"""Three machines on one wire, for a Slurm: the first runs the tests, and the wires of the two others end in it.

A wire is a socket in a directory of the ring's: nothing of it is on a network of the host's.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vm.host import qemu
from vm.host.image import Image

TOPOLOGY = qemu.Topology(1, 3, 1, 1)  # of each
MEMORY = 512  # MiB of each
LIMIT = 1200  # seconds
NUMBERS = (1, 2, 3)
_OTHERS = NUMBERS[1:]
_SECONDS = 30  # for QEMU to make its sockets
# An emulated CPU's counter may be measured wrongly at the boot, and machines whose clocks differ do not believe each
# other. This clock is slower to read, and right.
_CLOCK = "clocksource=acpi_pm"


@contextmanager
def running(
    image: Image, accelerator: str, scratch: Path, archives: tuple[Path, Path], nice: int
) -> Iterator[dict[int, subprocess.Popen[bytes]]]:
    """All three, by number, until the context is left; archives are what goes in, and what the first one brings out.
    In the scratch directory each has its console-nN, its serial line line-nN, its qemu-nN.log and its debugger's
    socket gdb-nN. Raises OSError.
    """
    machine = qemu.Machine(image, TOPOLOGY, MEMORY)
    archive, out = archives
    processes: dict[int, subprocess.Popen[bytes]] = {}
    for name in (name for number in NUMBERS for name in (f"console-n{number}", f"line-n{number}", f"wire{number}")):
        (scratch / name).unlink(missing_ok=True)  # those of machines that were begun before
    with ExitStack() as stack:
        for number in NUMBERS:
            disks = (f"file={archive},read-only=on", *((f"file={out}",) if number == 1 else ()))
            console = scratch / f"console-n{number}"
            console.touch()
            words = machine.boot(
                accelerator, parameters=f"{_CLOCK} ring.node={number}", disks=disks, console=str(console),
                line=f"{scratch}/line-n{number}", debugger=f"{scratch}/gdb-n{number}",
            )  # fmt: skip
            log = scratch / f"qemu-n{number}.log"
            processes[number] = started = qemu.run([*words, *wires(number, scratch)], LIMIT, log, nice)
            stack.callback(qemu.end, started)
            if number == 1:
                _wait_for_sockets(started, scratch)
        yield processes


def wires(number: int, scratch: Path) -> list[str]:
    """QEMU's words for the card of a machine, and for what it is wired to."""
    card = f"virtio-net-pci,netdev=here,mac=52:54:00:00:00:0{number},romfile="  # nothing is booted from it
    if number in _OTHERS:
        end = f"stream,id=here,server=off,addr.type=unix,addr.path={scratch}/wire{number}"
        return ["-netdev", end, "-device", card]
    words = ["-netdev", "hubport,id=here,hubid=0", "-device", card]
    for other in _OTHERS:
        words += ["-netdev", f"stream,id=wire{other},server=on,addr.type=unix,addr.path={scratch}/wire{other}",
                  "-netdev", f"hubport,id=port{other},hubid=0,netdev=wire{other}"]  # fmt: skip
    return words


def _wait_for_sockets(first: subprocess.Popen[bytes], scratch: Path) -> None:
    end = time.monotonic() + _SECONDS
    while not all((scratch / f"wire{other}").exists() for other in _OTHERS):
        if first.poll() is not None or time.monotonic() > end:
            raise OSError(f"qemu made no wires: {(scratch / 'qemu-n1.log').read_text()[-2000:]}")
        time.sleep(0.05)


def install(wheel: Path, target: Path) -> None:
    """What pip would make of the wheel in an environment of the machines, whose Python is that of this process."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--ignore-installed", "--prefix", str(target), str(wheel)], check=True, capture_output=True)
