"""The load of the machine's GPUs, where readable. Runs in commands that refresh a display."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

from nodectl.kernel import pseudo_file

_PLACES = ("usr/bin", "usr/local/bin")  # never the caller's PATH: the caller may be root
_ASK = ("--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits")
_PATIENCE = 2.0  # seconds
_SELDOM, _MORE_SELDOM = 10.0, 120.0  # seconds between two questions; after one that was not answered
_CARD = re.compile(r"/card(\d+)/")


class GpuReader:
    """A reader of the GPUs' load: from sysfs for amdgpu, through nvidia-smi for NVIDIA's driver.

    nvidia-smi is slow, so it is called seldom, and only where the driver is loaded.
    """

    def __init__(self, root: str = "/", clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._due = clock()
        self._nvidia: list[int] = []
        self._asked: subprocess.Popen[str] | None = None

    def read(self) -> list[int]:
        """Return the load of each readable GPU in percent: AMD's in the order of the cards, then NVIDIA's."""
        return [*self._amd(), *self._nvidias()]

    def _amd(self) -> list[int]:
        found: dict[int, int] = {}
        for path in glob.glob(os.path.join(self._root, "sys/class/drm/card*/device/gpu_busy_percent")):
            card = _CARD.search(path)
            with suppress(OSError, ValueError):  # a sleeping GPU does not report its load
                if card is not None:
                    found[int(card[1])] = int(pseudo_file.read(path))
        return [busy for _, busy in sorted(found.items())]

    def _nvidias(self) -> list[int]:
        if self._clock() < self._due or (self._asked is not None and self._asked.poll() is None):
            return self._nvidia  # a program that hangs in the driver is not started again
        self._asked = None
        program = self._program()
        self._nvidia = self._answer(program) if program else []
        self._due = self._clock() + (_SELDOM if self._nvidia else _MORE_SELDOM)
        return self._nvidia

    def _program(self) -> str:
        if not os.path.isdir(os.path.join(self._root, "proc/driver/nvidia/gpus")):
            return ""
        paths = (os.path.join(self._root, place, "nvidia-smi") for place in _PLACES)
        return next((path for path in paths if os.access(path, os.X_OK)), "")

    def _answer(self, program: str) -> list[int]:
        try:
            self._asked = subprocess.Popen(
                [program, *_ASK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            return []
        try:
            said, _ = self._asked.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self._asked.kill()  # and not waited for: it may hang in the driver
            return []
        except UnicodeDecodeError:
            return []
        return [int(busy) for busy in re.findall(r"^\d+, *(\d+)\s*$", said, re.MULTILINE)]
