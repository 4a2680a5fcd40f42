"""Munge and Slurm's daemons, run from a directory of unpacked packages, with a key and a configuration of our own.

They end with the process that started them, whatever ends it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slurm.packages import NoSlurm

PATIENCE = 60  # seconds
_KEY_BYTES = 1024
# It tracks processes without cgroups, which a machine without a systemd of its own may refuse.
_CONFIG = """\
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={here}/munge.socket
PluginDir={plugins}
StateSaveLocation={here}/state
SlurmdSpoolDir={here}/spool.%n
SlurmctldPidFile={here}/slurmctld.pid
SlurmdPidFile={here}/slurmd.%n.pid
SlurmctldLogFile={here}/slurmctld.log
SlurmdLogFile={here}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
ReturnToService=2
"""


class Daemons:
    """`here` is their directory; in its `root` are the packages. `end` ends what was started."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self.root = here / "root"
        library = f"{self.root}/usr/lib/{os.uname().machine}-linux-gnu"
        plugins = f"{library}/slurm-wlm"
        self.config = here / "slurm.conf"
        self.common = _CONFIG.format(here=here, plugins=plugins)
        # What the daemons and the commands need to find each other.
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "LD_LIBRARY_PATH": f"{plugins}:{library}:{self.root}/lib/{os.uname().machine}-linux-gnu",
            "SLURM_CONF": str(self.config),
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def configure(self, lines: str) -> None:
        """Writes slurm.conf: these lines, and what holds for every Slurm here."""
        self.config.write_text(lines + self.common, encoding="utf-8")

    def configure_devices(self, lines: str) -> None:
        """Writes gres.conf, which stands beside it."""
        self.config.with_name("gres.conf").write_text(lines, encoding="utf-8")

    def start_munge(self) -> None:
        """Raises NoSlurm."""
        here = self.here
        key = here / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(_KEY_BYTES))
        self.start(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={here}/munge.socket",
            f"--pid-file={here}/munged.pid", f"--log-file={here}/munged.log", f"--seed-file={here}/munged.seed",
        )  # fmt: skip
        self.until((here / "munge.socket").exists, "munged")

    def start_controller(self, *, anew: bool = True) -> subprocess.Popen[bytes]:
        """It may not serve yet when this returns. Not `anew`: it knows what the last one has written."""
        (self.here / "state").mkdir(exist_ok=True)
        return self.start("slurmctld", "-D", *(["-c"] if anew else []), "-f", str(self.config))

    def start_node(self, node: str) -> subprocess.Popen[bytes]:
        """The daemon of a node of the configuration; it may not serve yet when this returns."""
        (self.here / f"spool.{node}").mkdir(exist_ok=True)
        stepd = f"{self.root}/usr/sbin/slurmstepd"
        return self.start("slurmd", "-D", "-N", node, "-f", str(self.config), "-d", stepd)

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """It ends with us, even by SIGKILL, and leaves no core where the work was begun."""
        guarded = ["prlimit", "--core=0:", "setpriv", "--pdeathsig", "TERM", f"{self.root}/usr/sbin/{name}", *words]
        with (self.here / f"{name}.{os.uname().nodename}.out").open("wb") as out:
            daemon = subprocess.Popen(guarded, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.environment)
        self._running.append(daemon)
        return daemon

    def ask(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """One of Slurm's commands, to its end."""
        return subprocess.run(
            [f"{self.root}/usr/bin/{name}", *words], env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip

    def states(self) -> Sequence[str]:
        """Those of the nodes, as sinfo says them."""
        return self.ask("sinfo", "-h", "-N", "-o", "%T").stdout.split()

    def until(self, condition: Callable[[], bool], who: str) -> None:
        """Raises NoSlurm when one of the daemons has ended, or nothing comes of it."""
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self._running):
                said = "".join(path.read_text(errors="replace")[-500:] for path in sorted(self.here.glob("*.out")))
                raise NoSlurm(f"{who} did not start: {said.strip()}")
            time.sleep(0.05)

    def end(self) -> None:
        """Ends what was started."""
        for daemon in reversed(self._running):  # munged last: the others still speak
            daemon.terminate()
            try:
                daemon.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
