"""nodectl as this machine's service: systemctl, the installed command as root or as a user, steps, what is left."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from nodectl.launch.cgroup.tree import RUNNERS
from rootful import node

UNIT = "nodectld.service"
SOCKET_UNIT = "nodectld.socket"
SLICE = "/nodectl.slice"
GROUP = f"{SLICE}/{UNIT}"
STEPS_UNIT = "nodectl-steps.service"
STEPS_GROUP = f"{SLICE}/{STEPS_UNIT}/nodectl"
CGROUPS = Path("/sys/fs/cgroup")
STEPS = Path("/run/nodectl/steps")
CONFIG = Path("/etc/nodectl/nodectl.toml")
SHARED = "".join(f'{name} = "{value}"\n' for name, value in node.SHARED.items())  # what every test's service has
DROP_IN = Path(f"/run/systemd/system/{UNIT}.d/test.conf")
Test = TypeVar("Test", bound=Callable[..., None])
_MOST_TASKS = 64  # of a step that waits
_PATIENCE = 120  # seconds; the machine's CPUs may be emulated, and its host busy


def run(*words: str, user: str = "", **how: Any) -> subprocess.CompletedProcess[str]:
    """A command to its end, as root or as a user with all of that user's groups."""
    how = {"stdin": subprocess.DEVNULL, **how}
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=_PATIENCE, env=_login(user), **_as(user), **how
    )


def start(
    *words: str, user: str = "", stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE, command: str = "run"
) -> subprocess.Popen[str]:
    """`nodectl run ...`, or another command, left alone."""
    return subprocess.Popen(
        ["nodectl", command, *words],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=_login(user),
        **_as(user),
    )


def finished(client: subprocess.Popen[str]) -> tuple[int, str, str]:
    """How it ended: exit status, stdout, and what it complained of besides the task's exit code."""
    out, err = client.communicate(timeout=_PATIENCE)
    usual = f"task 0: Exited with exit code {client.returncode}\n"
    return client.returncode, out, "".join(line for line in err.splitlines(True) if not line.endswith(usual))


def nodectl(*words: str, user: str = "") -> str:
    """What a nodectl command prints; it must succeed and have no complaint."""
    done = run("nodectl", *words, user=user)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def systemctl(*words: str) -> str:
    """What systemctl prints; it must succeed."""
    done = run("systemctl", *words)
    assert done.returncode == 0, f"{done.stderr}{logged()[-3000:]}"
    return done.stdout.strip()


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Polls a condition; fails with `what` when it does not come true in this machine's time."""
    node.wait_until(condition, what, _PATIENCE)


def shown(name: str, unit: str = UNIT) -> str:
    """A property of the unit."""
    return systemctl("show", "--value", "--property", name, unit)


def main_pid() -> int:
    """The daemon's."""
    return int(shown("MainPID"))


def is_active(unit: str = UNIT) -> bool:
    return shown("ActiveState", unit) == "active"


def logged(since: float = 0) -> str:
    """The journal of the service, from a time of the clock on; what was said before now is in it."""
    run("journalctl", "--sync")
    return run("journalctl", "--unit", UNIT, "--output", "cat", "--since", f"@{since:.6f}").stdout


def configure_unit(text: str) -> None:
    """Adds lines to the unit's [Service], until the test is over."""
    DROP_IN.parent.mkdir(parents=True, exist_ok=True)
    DROP_IN.write_text(f"[Service]\n{text}\n")
    systemctl("daemon-reload")


def write_config(text: str = "") -> None:
    """Writes the service's configuration, which it reads at its next start."""
    CONFIG.parent.mkdir(parents=True, exist_ok=True)
    CONFIG.write_text(SHARED + text)


def settle(text: str) -> None:
    """At the begin of a test: the service has this configuration, besides what every test's has. It is started anew
    where it had another, which under emulation takes seconds.
    """
    if not CONFIG.exists() or CONFIG.read_text() != SHARED + text:
        write_config(text)
        systemctl("restart", UNIT)


def configured(*lines: str) -> Callable[[Test], Test]:
    """The test begins with these lines in the configuration: each change of it takes a restart."""

    def settled(test: Test) -> Test:
        vars(test)["SERVICE"] = "".join(f"{line}\n" for line in lines)
        return test

    return settled


def limit_steps(setting: str) -> None:
    """A property of the unit of steps, which its cgroup has from now on."""
    systemctl("set-property", "--runtime", STEPS_UNIT, setting)
    is_active(STEPS_UNIT)  # systemd writes it after one answer, and before the next


def restore(text: str = "") -> None:
    """The service as it was settled for a test, running; whatever that did."""
    of_unit = DROP_IN.exists()
    changed = of_unit or not CONFIG.exists() or CONFIG.read_text() != SHARED + text
    DROP_IN.unlink(missing_ok=True)
    write_config(text)
    if of_unit:
        systemctl("daemon-reload")
    states = () if changed else systemctl("show", "--value", "--property", "ActiveState", SOCKET_UNIT, UNIT).split()
    if states == ["active", "active"]:
        return
    systemctl("reset-failed")
    systemctl("restart" if changed else "start", SOCKET_UNIT, UNIT)


class Sleeper:
    """A step of a user's that has begun, as its client knows, and ends with `status` when it is let go."""

    def __init__(self, user: str, status: int = 0, *words: str) -> None:
        account = pwd.getpwnam(user)
        self.home = Path(account.pw_dir)
        go, there = self.home / "go", self.home / "there"
        for path in (go, there):
            path.unlink(missing_ok=True)
        # A shell that looked again and again would start a program each time.
        os.mkfifo(go)
        os.chown(go, account.pw_uid, account.pw_gid)
        self._go = os.open(go, os.O_RDWR)
        script = (
            "trap 'echo told' USR1; exec 9<go; echo $SLURM_JOB_ID > there.part; mv there.part there; "
            f"until read line <&9; do :; done; echo ran; exit {status}"
        )
        self.client = start(*words, "--chdir", str(self.home), "sh", "-c", script, user=user)
        try:
            wait_until(there.exists, "the step has begun")
            node.wait_for_answer(self.client)
        except AssertionError:
            self.client.kill()
            raise AssertionError(f"no step: {finished(self.client)}; {logged()[-2000:]}") from None
        self.job = int(there.read_text())

    def let_go(self) -> tuple[int, str, str]:
        """How its client ended."""
        os.write(self._go, b"\n" * _MOST_TASKS)
        os.close(self._go)
        return finished(self.client)

    @property
    def group(self) -> Path:
        """The step's cgroup, where the service makes it."""
        return CGROUPS / STEPS_GROUP[1:] / f"job_{self.job}/step_0"

    def task(self) -> int:
        """Its shell, the first one's: what that starts comes and goes."""
        runner = self.runner()
        return min(pid for pid in processes(self.group / "user") if _is_child(pid, runner))

    def runner(self) -> int:
        """The stepd."""
        groups = (self.group / "stepd", CGROUPS / STEPS_GROUP[1:] / RUNNERS)
        found = [pid for group in groups if group.exists() for pid in processes(group)]
        (pid,) = set(found) & set(_named(f"stepd {self.job}.0"))
        return pid


def running_steps(user: str = "") -> list[int]:
    """The jobs that `nodectl ps` shows to a user."""
    return [int(step["job"]) for step in json.loads(nodectl("ps", "--json", user=user))["steps"]]


def end_steps() -> None:
    """Those that a failed test left."""
    for job in running_steps():
        run("nodectl", "signal", "-s", "KILL", str(job))


def record(job: int) -> dict[str, Any]:
    """What is known of an ended job; waits until it is in the history."""
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(json.loads(nodectl("show", "--json", f"{job}.0")))
        return "exit_status" in found

    wait_until(ended, f"job {job} is recorded")
    return found


def only_running() -> tuple[int, int]:
    """The one step that there is: its job and the pid of its task, once it has one."""
    tasks: list[tuple[int, int]] = []

    def is_there() -> bool:
        for job in running_steps():
            step = json.loads(nodectl("show", "--json", str(job)))
            # A stepd that is busy is not waited for: it says nothing of tasks then.
            tasks.extend((job, task["pid"]) for task in step.get("tasks", ()) if task["pid"])
        return bool(tasks)

    wait_until(is_there, "the step has a task")
    ((job, pid),) = tasks
    return job, pid


def leftovers() -> list[str]:
    """What is there of steps: files, sockets, cgroups, stepds."""
    found = [str(path) for path in STEPS.iterdir()] if STEPS.exists() else []
    found += [str(path) for path in (CGROUPS / STEPS_GROUP[1:]).glob("*/") if path.name != RUNNERS]
    return found + [f"process {pid}" for pid in _named("stepd")]


def assert_clean() -> None:
    """Soon nothing of any step is left."""
    wait_until(lambda: not leftovers(), f"nothing is left of steps; at first {leftovers()}")


def assert_gone(*pids: int) -> None:
    """Soon there is none of these processes: who collects orphans may take a moment."""
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), f"of {pids} each has ended")


def kill(*pids: int, number: int = signal.SIGKILL) -> None:
    for pid in pids:
        os.kill(pid, number)


def forkserver() -> int:
    """The one of this service: until it has a name of its own, what that forks has the same."""
    daemon = main_pid()
    (pid,) = (pid for pid in _named("nodectl-fork") if _is_child(pid, daemon))
    return pid


def status_of(text: str) -> dict[str, str]:
    """The lines of /proc/PID/status."""
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def since() -> float:
    """Now, for `logged`."""
    return time.time()


def _named(beginning: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().startswith(beginning):
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has just ended
    return found


def _is_child(pid: int, parent: int) -> bool:
    try:
        return status_of(Path(f"/proc/{pid}/status").read_text())["PPid"] == str(parent)
    except OSError:
        return False  # it has just ended


def processes(group: Path) -> list[int]:
    return [int(pid) for path in group.rglob("cgroup.procs") for pid in path.read_text().split()]


def _login(user: str) -> dict[str, str]:
    account = pwd.getpwnam(user or "root")
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
    }


def _as(user: str) -> dict[str, Any]:
    if not user:
        return {"cwd": "/"}
    account = pwd.getpwnam(user)
    groups = os.getgrouplist(user, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups, "cwd": account.pw_dir}
