"""The reason for a task's mask, in words about the hardware."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nodectl.model.cpu_list import format_cpulist
from nodectl.placement.machine.topology import Topology


class Hardware:
    """Names for the cores and sockets of masks; looks each mask up once."""

    def __init__(self, machine: Topology) -> None:
        self._of_cpu = {
            cpu: (socket.number, core.number, core.mask)
            for socket in machine.sockets
            for core in socket.cores
            for cpu in core.cpus
        }
        self._known: dict[int, str] = {}

    def name(self, mask: int) -> str:
        """Return the mask in words: `cores 0-1 of socket 0, a part of core 4 of socket 1`."""
        if mask not in self._known:
            self._known[mask] = self._look_up(mask)
        return self._known[mask]

    def _look_up(self, mask: int) -> str:
        whole: dict[int, list[int]] = {}
        parts: dict[int, list[int]] = {}
        rest = mask
        while rest:
            cpu = (rest & -rest).bit_length() - 1
            socket, core, threads = self._of_cpu.get(cpu, (-1, cpu, 1 << cpu))
            group = whole if threads & mask == threads else parts
            group.setdefault(socket, []).append(core)
            rest &= ~threads
        words: list[str] = []
        for socket in sorted({*whole, *parts}):
            words += _of_socket("", whole.get(socket, ()), socket)
            words += _of_socket("a part of ", parts.get(socket, ()), socket)
        return ", ".join(words)


def _of_socket(part: str, cores: Sequence[int], socket: int) -> Iterable[str]:
    if cores:
        yield f"{part}core{'s' if len(cores) > 1 else ''} {format_cpulist(cores)} of socket {socket}"
