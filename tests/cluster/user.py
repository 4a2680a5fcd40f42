"""A user of a bed who has nothing of nodectl but a virtual environment below their home."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from cluster.bed import Allocation, Bed

_NEEDED = "nodectl"


def install(bed: Bed, user: pwd.struct_passwd) -> Path:
    """What `pip install nodectl` does, of what is installed here. Returns its directory of programs."""
    place = bed.home(user) / "nodectl"
    if not place.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
        own = Path(sysconfig.get_paths(vars={"base": str(place), "platbase": str(place)})["purelib"])
        for name in (_NEEDED, *_requirements()):
            _copy(name, own)
        for program in ("nodectl", "nodectl-python"):
            shutil.copy2(Path(sys.prefix) / "bin" / program, place / "bin" / program)
        for path in (place, *place.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return place / "bin"


def _requirements() -> list[str]:
    """Those without an extra's name."""
    found = metadata.requires(_NEEDED) or []
    return [line.partition(">")[0].partition("=")[0].strip() for line in found if "extra ==" not in line]


def _copy(name: str, target: Path) -> None:
    packages = Path(sysconfig.get_paths()["purelib"])
    distribution = metadata.distribution(name)
    for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
        source = packages / top
        if source.is_dir():
            shutil.copytree(source, target / top, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / top)


def who_tells(secret: bytes, pids: Iterable[int]) -> list[str]:
    """In whose arguments or environment it is, of those that run still."""
    found = []
    for path in (Path(f"/proc/{pid}/{name}") for pid in pids for name in ("cmdline", "environ")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if secret in path.read_bytes():
                found.append(str(path))
    return found


class User:
    """In an allocation, with the command in PATH."""

    def __init__(self, bed: Bed, job: Allocation) -> None:
        self.bed = bed
        self.job = job
        path = f"{install(bed, job.user)}:{job.environment['PATH']}"
        self._how: dict[str, Any] = {"env": {"PATH": path}}

    def nodectl(self, *words: str, machine: str = "n1", **how: Any) -> subprocess.CompletedProcess[str]:
        """A command of nodectl's, typed on a node, to its end."""
        return self.job.run("nodectl", *words, machine=machine, **{**self._how, **how})

    def popen(self, *words: str, machine: str = "n1", **how: Any) -> subprocess.Popen[str]:
        """Likewise, and returns at once."""
        return self.job.popen("nodectl", *words, machine=machine, **{**self._how, **how})

    def start(self, machine: str = "n1") -> None:
        """Their cluster."""
        done = self.nodectl("cluster", "start", machine=machine)
        assert done.returncode == 0, done.stderr

    def processes(self, *words: str, machine: str = "") -> list[int]:
        """Theirs in whose command line all of these stand, on one machine or anywhere; not the srun of agents."""
        found = self.bed.processes(self.job.user)
        there = [pid for pid, line in found.items() if all(word in line for word in words) and line[:5] != "srun "]
        return [pid for pid in there if not machine or self.bed.runs_on(pid, machine)]

    def called(self, name: str, machine: str = "") -> list[int]:
        """Theirs whose own name is this, or begins with it and a space, on one machine or anywhere."""
        return [pid for pid in self.processes(machine=machine) if _name_of(pid).split(" ")[0] == name]

    def sleeps(self, machine: str = "") -> list[int]:
        """Tasks of theirs that are `sleep 600`, not the shells and clients whose command line has it, too."""
        return [pid for pid in self.processes("sleep", "600", machine=machine) if _name_of(pid) == "sleep"]


def _name_of(pid: int) -> str:
    """Nothing of one that has just ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""
