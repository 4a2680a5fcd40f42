"""A Slurm of one node for the length of a measurement, and srun beside `nodectl run`.

Debian's packages are unpacked, not installed. Munge, controller and node daemon are started from there, listen on
loopback only, and end with this process, whatever ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from bench.programs import LOOPS, TRUE, loops, spawn
from bench.rows import Row, in_turns
from slurm.daemons import Daemons
from slurm.packages import NoSlurm, fetch

MOST_TASKS = 128
_TURNS = 3  # of the loops
_AT_ONCE = 32  # of many steps
_LONGEST = 180  # seconds for all of srun's rows
_CONFIG = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
{settings}
NodeName={node} NodeAddr=127.0.0.1 NodeHostname={host} {hardware}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# At its leanest: it binds nothing and gathers no figures. nodectl does all of that in the same row.
_LEANEST = """\
TaskPlugin=task/none
MpiDefault=none
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
"""


class Slurm:
    """The daemons, from `started` on; they know one node, called `node`, with `hardware` as slurm.conf names it."""

    def __init__(self, here: Path, settings: str, hardware: str, node: str) -> None:
        self._daemons = Daemons(here)
        self._settings = settings
        self._hardware = hardware
        self._node = node

    def start(self) -> None:
        """Raises NoSlurm."""
        daemons = self._daemons
        fetch(daemons.root)
        daemons.configure(
            _CONFIG.format(
                host=os.uname().nodename.partition(".")[0], ports=_free_ports(2), node=self._node,
                hardware=self._hardware, settings=self._settings,
            )
        )  # fmt: skip
        daemons.start_munge()
        daemons.start_controller()
        daemons.start_node(self._node)
        daemons.until(lambda: daemons.states() == ["idle"], "slurmctld and slurmd")

    def allocate(self) -> None:
        """One allocation of the whole node, within which every srun is a step. Raises NoSlurm."""
        granted = self._daemons.ask("salloc", "--no-shell", f"-n{MOST_TASKS}", "-Jbench")
        job = self._daemons.ask("squeue", "-h", "-o", "%A").stdout.strip()
        if granted.returncode or not job:
            raise NoSlurm(f"salloc: {granted.stderr.strip()}")
        self._daemons.environment["SLURM_JOB_ID"] = job

    def srun(self, ntasks: int) -> Callable[[], None]:
        """A step in the allocation; it waits for no other."""
        return spawn(*self._srun(ntasks), environment=self._daemons.environment)

    def sruns(self, count: int) -> Callable[[], None]:
        """So many steps of one task in the allocation, some of them at a time."""
        return _through_xargs(count, self._srun(1), self._daemons.environment)

    def _srun(self, ntasks: int) -> list[str]:
        return [f"{self._daemons.root}/usr/bin/srun", "--overlap", f"-n{ntasks}", TRUE]

    def write_commands(self, directory: Path) -> None:
        """Each of its commands as a script that finds this Slurm."""
        directory.mkdir()
        settings = {name: value for name, value in self._daemons.environment.items() if name != "PATH"}
        for program in sorted((self._daemons.root / "usr/bin").glob("s*")):
            command = directory / program.name
            # Not a shell's: it would drop variables whose names are none to it.
            text = f"os.execve({str(program)!r}, sys.argv, {{**os.environ, **{settings!r}}})"
            command.write_text(f"#!{sys.executable} -IS\nimport os, sys\n\n{text}\n", encoding="utf-8")
            command.chmod(0o755)

    def end(self) -> None:
        """Ends what was started, what steps are left included."""
        if job := self._daemons.environment.get("SLURM_JOB_ID"):
            self._daemons.ask("scancel", job)
        self._daemons.end()


@contextlib.contextmanager
def running() -> Iterator[Slurm]:
    """Slurm as it is measured. Raises NoSlurm."""
    with started(_LEANEST, f"CPUs={MOST_TASKS}", "bench") as slurm:
        slurm.allocate()
        yield slurm


@contextlib.contextmanager
def started(settings: str, hardware: str, node: str) -> Iterator[Slurm]:
    """A Slurm with further lines of slurm.conf. Raises NoSlurm."""
    with tempfile.TemporaryDirectory(prefix="nodectl-slurm-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        slurm = Slurm(Path(name), settings, hardware, node)
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.end()


def beside_srun(rounds: int, seconds: float, steps: int, run: list[str], slurm: Slurm) -> list[Row]:
    """The rows of `nodectl run` and srun; `run` are the words of the former without options and program. `steps`: how
    many in one allocation.
    """
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(_LONGEST)
    try:
        return [*_rows(rounds, seconds, run, slurm), _in_one_allocation(steps, run, slurm)]
    finally:
        signal.alarm(0)


def _hangs(_number: int, _frame: object) -> NoReturn:
    raise NoSlurm(f"srun was not done after {_LONGEST} s")


def _rows(rounds: int, seconds: float, run: list[str], slurm: Slurm) -> list[Row]:
    rows = []
    for ntasks, goal in ((1, 0.12), (8, 0.05), (MOST_TASKS, 0.2)):
        ours = spawn(*run, f"-n{ntasks}", TRUE)
        taken = in_turns(max(rounds // ntasks, 3), ours=ours, srun=slurm.srun(ntasks))
        what = f"nodectl run -n{ntasks} true / srun -n{ntasks} true"
        rows.append(Row(what, taken["ours"], taken["srun"], "s", goal))
    ours, srun = spawn(*run, TRUE), slurm.srun(1)
    counts = [(loops(ours, seconds / _TURNS), loops(srun, seconds / _TURNS)) for _ in range(_TURNS)]
    mine, theirs = (sum(column) / seconds for column in zip(*counts, strict=True))
    rows.append(Row(f"steps a second, {LOOPS} loops of nodectl run / of srun", mine, theirs, "1/s", 8, more=True))
    return rows


def _in_one_allocation(steps: int, run: list[str], slurm: Slurm) -> Row:
    """Many steps of one allocation, 32 at a time, which share its CPUs. The time of ours includes the allocation."""
    part = steps // _TURNS
    alloc = [*run[:-1], "alloc", "--quiet"]
    ours = _through_xargs(part, [*run, TRUE], os.environ, alloc)
    taken = in_turns(_TURNS - 1, ours=ours, srun=slurm.sruns(part))
    what = f"steps a second, {_AT_ONCE} at once in an allocation / srun"
    return Row(what, part / taken["ours"], part / taken["srun"], "1/s", 12, more=True)


def _through_xargs(
    count: int, words: list[str], environment: Mapping[str, str], within: Sequence[str] = ()
) -> Callable[[], None]:
    """Runs a command so many times, 32 at a time. `within`: the words of a command that runs xargs."""
    xargs = [*within, "xargs", f"-P{_AT_ONCE}", "-n1", *words]
    values = "".join(f"{number}\n" for number in range(count))

    def do() -> None:
        subprocess.run(xargs, input=values, env=environment, text=True, check=True)

    return do


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has."""
    with contextlib.ExitStack() as open_ones:
        found = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]
