"""A Slurm of one node for the length of a measurement, and srun beside `nodectl run`.

Debian's packages are unpacked into a directory of our own and installed nowhere: no account, no unit, no file of the
machine is made or changed. Munge, controller and node daemon are started from there with a configuration and a key of
our own, listen on loopback only, and end with this process, whatever ends it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from bench.programs import TRUE, spawn
from bench.rows import Row, in_turns

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
LOOPS = 8
MOST_TASKS = 128
_TURNS = 3  # of the loops
_PATIENCE = 60  # seconds
_LONGEST = 180  # seconds for all of srun's rows
_KEY_BYTES = 1024
# Slurm at its leanest: it binds nothing, gathers no figures, and tracks processes without cgroups, which a machine
# without a systemd of its own may refuse. nodectl does all of that in the same row.
_CONFIG = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={here}/munge.socket
PluginDir={plugins}
StateSaveLocation={here}/state
SlurmdSpoolDir={here}/spool
SlurmctldPidFile={here}/slurmctld.pid
SlurmdPidFile={here}/slurmd.pid
SlurmctldLogFile={here}/slurmctld.log
SlurmdLogFile={here}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=bench NodeAddr=127.0.0.1 NodeHostname={host} CPUs={cpus}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class CannotMeasure(Exception):
    """There is no Slurm to measure; str() says why."""


class Slurm:
    """The daemons, from `running` on, and one allocation of the whole node, within which every srun is a step."""

    def __init__(self, here: Path) -> None:
        self._here = here
        self._root = here / "root"
        library = f"{self._root}/usr/lib/{os.uname().machine}-linux-gnu"
        self._plugins = f"{library}/slurm-wlm"
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "LD_LIBRARY_PATH": f"{self._plugins}:{library}",
            "SLURM_CONF": f"{here}/slurm.conf",
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Raises CannotMeasure."""
        here = self._here
        _fetch(self._root)
        for name in ("state", "spool"):
            (here / name).mkdir()
        key = here / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(_KEY_BYTES))
        config = _CONFIG.format(
            here=here, host=socket.gethostname().partition(".")[0], ports=_free_ports(2), plugins=self._plugins,
            cpus=MOST_TASKS,
        )  # fmt: skip
        (here / "slurm.conf").write_text(config, encoding="utf-8")
        self._daemon(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={here}/munge.socket",
            f"--pid-file={here}/munged.pid", f"--log-file={here}/munged.log", f"--seed-file={here}/munged.seed",
        )  # fmt: skip
        self._until((here / "munge.socket").exists, "munged")
        self._daemon("slurmctld-wlm", "-D", "-c", "-f", f"{here}/slurm.conf")
        stepd = f"{self._root}/usr/sbin/slurmstepd-wlm"
        self._daemon("slurmd-wlm", "-D", "-N", "bench", "-f", f"{here}/slurm.conf", "-d", stepd)
        self._until(lambda: self._ask("sinfo", "-h", "-o", "%T").stdout.split() == ["idle"], "slurmctld and slurmd")
        granted = self._ask("salloc", "--no-shell", f"-n{MOST_TASKS}", "-Jbench")
        job = self._ask("squeue", "-h", "-o", "%A").stdout.strip()
        if granted.returncode or not job:
            raise CannotMeasure(f"salloc: {granted.stderr.strip()}")
        self._environment["SLURM_JOB_ID"] = job

    def srun(self, ntasks: int) -> Callable[[], None]:
        """A step in the allocation; it waits for no other."""
        return spawn(f"{self._root}/usr/bin/srun", "--overlap", f"-n{ntasks}", TRUE, environment=self._environment)

    def end(self) -> None:
        """Ends what was started, what steps are left included."""
        if "SLURM_JOB_ID" in self._environment:
            self._ask("scancel", self._environment["SLURM_JOB_ID"])
        for daemon in reversed(self._daemons):  # munged last: the others still speak
            daemon.terminate()
            try:
                daemon.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _daemon(self, name: str, *words: str) -> None:
        """It ends with us, even by SIGKILL, and leaves no core in the directory where the bench was begun."""
        guarded = ["prlimit", "--core=0", "setpriv", "--pdeathsig", "TERM", f"{self._root}/usr/sbin/{name}", *words]
        with (self._here / f"{name}.out").open("wb") as out:
            self._daemons.append(
                subprocess.Popen(guarded, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._environment)
            )

    def _ask(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([f"{self._root}/usr/bin/{name}", *words], env=self._environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=_PATIENCE)  # fmt: skip

    def _until(self, condition: Callable[[], bool], who: str) -> None:
        """Raises CannotMeasure when one of the daemons has ended, or nothing comes of it."""
        end = time.monotonic() + _PATIENCE
        while not condition():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self._daemons):
                said = "".join(path.read_text(errors="replace")[-500:] for path in sorted(self._here.glob("*.out")))
                raise CannotMeasure(f"{who} did not start: {said.strip()}")
            time.sleep(0.05)


@contextlib.contextmanager
def running() -> Iterator[Slurm]:
    """Slurm, started. Raises CannotMeasure."""
    with tempfile.TemporaryDirectory(prefix="nodectl-slurm-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        slurm = Slurm(Path(name))
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.end()


def beside_srun(rounds: int, seconds: float, run: list[str], slurm: Slurm) -> list[Row]:
    """The rows of `nodectl run` and srun; `run` are the words of the former without options and program."""
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(_LONGEST)
    try:
        return _rows(rounds, seconds, run, slurm)
    finally:
        signal.alarm(0)


def _hangs(_number: int, _frame: object) -> NoReturn:
    raise CannotMeasure(f"srun was not done after {_LONGEST} s")


def _rows(rounds: int, seconds: float, run: list[str], slurm: Slurm) -> list[Row]:
    rows = []
    for ntasks, budget in ((1, 0.4), (8, 0.25), (MOST_TASKS, 0.5)):
        ours = spawn(*run, f"-n{ntasks}", TRUE)
        taken = in_turns(max(rounds // ntasks, 3), ours=ours, srun=slurm.srun(ntasks))
        what = f"nodectl run -n{ntasks} true / srun -n{ntasks} true"
        rows.append(Row(what, taken["ours"], taken["srun"], "s", budget))
    ours, srun = spawn(*run, TRUE), slurm.srun(1)
    counts = [(_loops(ours, seconds / _TURNS), _loops(srun, seconds / _TURNS)) for _ in range(_TURNS)]
    mine, theirs = (sum(column) / seconds for column in zip(*counts, strict=True))
    rows.append(Row(f"steps a second, {LOOPS} loops of nodectl run / of srun", mine, theirs, "1/s", 3, more=True))
    return rows


def _loops(command: Callable[[], None], seconds: float) -> int:
    """How often several processes together get a command done."""
    end = time.monotonic() + seconds
    children = []
    for _ in range(LOOPS):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            count = 0
            signal.alarm(_LONGEST)
            try:
                while time.monotonic() < end:
                    command()
                    count += 1
                os.write(writer, str(count).encode())
            finally:
                os._exit(0)
        os.close(writer)
        children.append((pid, reader))
    total = 0
    for pid, reader in children:
        with open(reader, "rb") as file:
            total += int(file.read() or 0)  # nothing, where a command failed
        os.waitpid(pid, 0)
    return total


def _fetch(root: Path) -> None:
    """Debian's packages and those they need and this machine lacks, unpacked. Raises CannotMeasure."""
    if shutil.which("apt-get") is None:
        raise CannotMeasure("no apt-get here: the Slurm that is measured is Debian's")
    archives = root.parent / "archives"
    (archives / "partial").mkdir(parents=True)
    apt = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "Acquire::http::Timeout=20"]
    # `--reinstall`: also those that are installed here, so that a Slurm of this machine's is not what is measured.
    download = [*apt, "-o", f"Dir::Cache::archives={archives}", "-o", "DPkg::Lock::Timeout=600", "install",
                "--download-only", "--reinstall", "--no-install-recommends", "--yes", *PACKAGES]  # fmt: skip
    done = _run(download)
    if done.returncode:
        _run([*apt, "update"])
        done = _run(download)
    packages = sorted(archives.glob("*.deb"))
    if done.returncode or not packages:
        raise CannotMeasure(f"cannot fetch {' '.join(PACKAGES)}: {done.stderr.strip()}")
    for package in packages:
        unpacked = _run(["dpkg-deb", "-x", str(package), str(root)])
        if unpacked.returncode:
            raise CannotMeasure(unpacked.stderr.strip())


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has."""
    with contextlib.ExitStack() as open_ones:
        found = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]
