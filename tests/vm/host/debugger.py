"""GDB's remote protocol to QEMU: frees CPUs that execute what is no longer in memory; asks a machine what it does.

An emulator with a thread for each CPU may keep the translation of an instruction that another CPU has just replaced.
QEMU 7.2 does so with the breakpoints that the kernel sets for a moment where it changes its own code: every CPU that
comes there traps, finds no breakpoint in memory, returns, and traps again.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 60  # seconds for an answer; the host may be busy
_PACKET = re.compile(rb"\$([^#]*)#..", re.DOTALL)
_RIP = slice(16 * 8, 17 * 8)  # where it is among GDB's registers of x86-64


class Debugger:
    """A machine that stands still while this is connected."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._heard = b""

    def translate_again(self) -> None:
        """Of what each CPU executes next: a write of what is there throws the translation away. Raises OSError."""
        for cpu in list(self._cpus()):
            self._ask(f"Hg{cpu}")
            registers = bytes.fromhex(self._ask("g"))
            address = int.from_bytes(registers[_RIP], "little")
            byte = self._ask(f"m{address:x},1")
            if len(byte) == 2:  # else an error: nothing is mapped there
                self._ask(f"M{address:x},1:{byte}")

    def interrupt(self) -> None:
        """An NMI: a kernel with unknown_nmi_panic tells what its tasks do, and boots. Raises OSError."""
        self._ask(f"qRcmd,{b'nmi'.hex()}")

    def leave(self) -> None:
        """The machine goes on. Raises OSError."""
        self._ask("D")

    def _cpus(self) -> Iterator[str]:
        words = self._ask("qfThreadInfo")
        while words.startswith("m"):
            yield from words[1:].split(",")
            words = self._ask("qsThreadInfo")

    def tell(self, words: str) -> None:
        """A packet, whose answer is not waited for. Raises OSError."""
        self._link.sendall(f"${words}#{sum(words.encode()) % 256:02x}".encode())

    def _ask(self, words: str) -> str:
        self.tell(words)
        while True:
            answer = self._packet()
            if not answer.startswith(("T", "O")) or answer == "OK":  # that it stopped; what a command prints
                return answer

    def _packet(self) -> str:
        while (whole := _PACKET.search(self._heard)) is None:
            heard = self._link.recv(65536)
            if not heard:
                raise OSError("QEMU has closed its debugger's socket")
            self._heard += heard
        self._heard = self._heard[whole.end() :]
        self._link.sendall(b"+")
        return whole[1].decode()


@contextmanager
def attached(path: Path) -> Iterator[Debugger]:
    """To the machine whose QEMU has made this socket. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(PATIENCE)
        link.connect(str(path))
        debugger = Debugger(link)
        try:
            yield debugger
        except BaseException:
            with suppress(OSError):
                debugger.tell("D")  # it goes on when it has heard this: who has not answered is not waited for again
            raise
        debugger.leave()
