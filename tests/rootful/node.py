"""A real node for a test: a daemon of its own in directories of its own, clients as root or as an ordinary user, and
a check that nothing is left.

Everything is real: root, cgroups, plugins in files, sockets. Runs beside any other node of the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from nodectl.launch.forkserver import spare
from nodectl.launch.stepd.orders import WAITING
from nodectl.model.wire import framing

NOBODY = pwd.getpwnam("nobody")
OTHER = pwd.getpwnam("daemon")  # a second ordinary account that every Linux has
BOOT = "import sys; sys.path[:0] = {path!r}; from nodectl.cli.main import main; sys.exit(main())"
PATH = [sysconfig.get_paths()["purelib"]]
# Every job holds the whole machine and all share it: tests that say nothing of shares run beside each other so. A
# prolog that fails in one test stops no other.
SHARED: dict[str, object] = {"select_type": "select/linear", "over_subscribe": "force:10000", "drain_on_failure": ""}
# Of every node of a test, a user's own too, where no task is to share its stepd's memory.
FORKS = {"always_fork": True} if os.environ.get("NODECTL_TEST_FORKS") else {}
PATIENCE = 45  # seconds, of which a busy machine may need many; less than what a test lets sleep for ever


class Node:
    """One running daemon. `config` are keys of the configuration, `plugstack` the text of plugstack.conf. Jobs share
    the machine, unless `config` says otherwise.
    """

    made: ClassVar[list[Node]] = []  # in this run of the tests

    def __init__(self, **config: object) -> None:
        # Below /run, because only root may write there: the configuration of root's daemon must be trusted.
        self.dir = Path(tempfile.mkdtemp(prefix="nodectl-test-", dir="/run"))
        self.dir.chmod(0o755)
        self.cgroup_name = self.dir.name
        self.scratch = self.dir / "scratch"  # where any user may write
        self.scratch.mkdir()
        self.scratch.chmod(0o1777)
        self.plugins = self.dir / "plugins"
        self.plugins.mkdir()
        self.config_path = self.dir / "nodectl.toml"
        self.values: dict[str, object] = {
            "runtime_dir": str(self.dir / "run"),
            "state_dir": str(self.dir / "state"),
            "cgroup_name": self.cgroup_name,
            "plugstack_config": str(self.dir / "plugstack.conf"),
            "plugin_dir": [str(self.plugins)],
            "kill_wait": 1,
            "warm_runner_time": 20,  # so that a busy machine finds one that waits
            **SHARED,
            **FORKS,
            **config,
        }
        self.daemon: subprocess.Popen[bytes] | None = None
        self.mount = tree.find_mount()
        self.base = f"{self.mount}{cgroup_of().rstrip('/')}/{self.cgroup_name}"
        self.configure()
        self.made.append(self)

    # Setting up.

    def configure(self, **changes: object) -> None:
        """Writes the configuration; takes effect at the next start of the daemon."""
        self.values.update(changes)
        lines = [f"{name} = {json.dumps(value)}" for name, value in self.values.items()]
        self.config_path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def plugin(self, name: str, text: str, kind: str = "spank") -> Path:
        """Writes a plugin file: `kind`/`name`.py in the node's own plugin directory. The head is made here."""
        path = self.plugins / kind / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        plugin_type = "spank" if kind == "spank" else f"{kind}/{name}"
        head = f'plugin_type = "{plugin_type}"\nplugin_name = "{name}"\nplugin_version = (22, 5, 8)\n'
        path.write_text(head + text, encoding="utf-8")
        return path

    def plugstack(self, text: str) -> None:
        """Writes plugstack.conf; it is read at each launch."""
        (self.dir / "plugstack.conf").write_text(text, encoding="utf-8")

    # The daemon.

    def start(self) -> Node:
        """Starts the daemon and waits until it listens."""
        self.log = (self.dir / "daemon.log").open("ab")
        python, *words = self.command("daemon")
        words[:0] = ("-X", "faulthandler")  # for `_where_it_hangs`
        self.daemon = subprocess.Popen(
            [python, *words], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=self.environment()
        )
        wait_until(self.answers, "the daemon listens")
        return self

    def answers(self) -> bool:
        assert self.daemon is not None
        if self.daemon.poll() is not None:
            last = "".join(self.logged().splitlines()[-1:])  # first: a list of failures has the first line alone
            raise AssertionError(f"the daemon ended with {self.daemon.returncode}: {last}\n{self.logged()}")
        try:
            return self.socket.exists() and "version" in self.call("Hello")
        except ConnectionError:  # the socket of a daemon that was killed
            return False

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ends the daemon with a signal and waits for its end."""
        if self.daemon is not None:
            self.daemon.send_signal(number)
            try:
                self.daemon.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"signal {number} does not end the daemon: {self._where_it_hangs()}") from None
            self.daemon = None

    def _where_it_hangs(self) -> str:
        """The end of the daemon's log, after a signal at which Python writes every thread's stack. It ends by it."""
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGABRT)
            self.daemon.wait(PATIENCE)
            self.daemon = None
        return self.logged()[-8000:]

    def restart(self, number: int = signal.SIGTERM) -> None:
        """Ends the daemon and starts another."""
        self.stop(number)
        self.start()

    @property
    def socket(self) -> Path:
        return Path(str(self.values["runtime_dir"])) / "nodectl.sock"

    @property
    def steps(self) -> Path:
        return Path(str(self.values["runtime_dir"])) / "steps"

    def logged(self) -> str:
        """What the daemon, the forkserver and stepds wrote on stderr."""
        return (self.dir / "daemon.log").read_text(encoding="utf-8", errors="replace")

    # Clients.

    def command(self, *words: str) -> list[str]:
        """The words that run nodectl with this node's configuration."""
        boot = BOOT.format(path=PATH)
        return [sys.executable, "-IS", "-c", boot, "--config", str(self.config_path), *words]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **(extra or {})}

    def nodectl(
        self,
        *words: str,
        user: pwd.struct_passwd | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float = 2 * PATIENCE,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a nodectl command to its end, as root or as `user`."""
        return subprocess.run(
            self.command(*words),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
            timeout=timeout,
            env=self.environment(env),
            cwd=cwd or str(self.scratch),
            **_as(user),
        )

    def run(self, *words: str, **how: object) -> subprocess.CompletedProcess[str]:
        """`nodectl run ...`."""
        return self.nodectl("run", *words, **how)  # type: ignore[arg-type]

    def call(self, method: str, **parameters: object) -> Mapping[str, object]:
        """A call of org.nodectl as root, from this process: the reply's parameters, or the whole error reply."""
        sock = framing.connect(str(self.socket))
        sock.settimeout(2 * PATIENCE)
        try:
            framing.send(sock, {"method": f"org.nodectl.{method}", "parameters": parameters})
            reply = framing.receive(sock, framing.Inbox(64 << 20))
            if reply is None:
                raise ConnectionResetError("no answer")
        except TimeoutError:
            raise AssertionError(f"{method} is not answered: {self._where_it_hangs()}") from None
        finally:
            sock.close()
        return reply if "error" in reply else reply["parameters"]  # type: ignore[return-value]

    def popen(self, *words: str, user: pwd.struct_passwd | None = None, **how: object) -> subprocess.Popen[str]:
        """Starts `nodectl run ...` and returns at once."""
        env: Any = how.pop("env", None)
        streams: dict[str, object] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **how,
        }
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            self.command("run", *words),
            text=True,
            env=self.environment(env),
            cwd=str(self.scratch),
            **streams,
            **_as(user),
        )

    def record(self, job: int, step: int = 0) -> dict[str, object]:
        """The record of a step that has ended, from `nodectl show --json`."""
        shown = self.nodectl("show", "--json", f"{job}.{step}")
        assert shown.returncode == 0, shown.stderr
        found: dict[str, object] = json.loads(shown.stdout)
        return found

    def last_job(self) -> int:
        """The number of the job that ended last or is running now."""
        steps = json.loads(self.nodectl("ps", "--json", "--ended", "1").stdout)["steps"]
        return max(int(step["job"]) for step in steps)

    def trace(self, job: int, step: int = 0) -> list[dict[str, object]]:
        """The flight recorder's lines."""
        shown = self.nodectl("trace", "--json", f"{job}.{step}")
        assert shown.returncode == 0, shown.stderr
        return [json.loads(line) for line in shown.stdout.splitlines()]

    # Nothing is left.

    def leftovers(self) -> list[str]:
        """What is still there of steps: cgroups, processes in them, files, sockets, stepds."""
        found = [str(path) for path in self.steps.iterdir()] if self.steps.exists() else []
        for directory, names, _ in os.walk(self.base):
            found += [f"{directory}/{name}" for name in names if name != tree.RUNNERS]
        found += [f"process {pid} {name}" for pid, name in self.processes() if name.startswith("stepd")]
        return found

    def processes(self) -> list[tuple[int, str]]:
        """Processes whose cgroup is a step's of this node, zombies too unless they are init's to collect; and step
        runners that serve one, but not those that wait.
        """
        found = []
        for name in filter(str.isdecimal, os.listdir("/proc")):
            pid = int(name)
            with contextlib.suppress(OSError):
                if f"/{self.cgroup_name}/" in cgroup_of(pid) and not _left_to_init(pid):
                    found.append((pid, Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()))
        return [(pid, name) for pid, name in found if name not in (WAITING, spare.WAITING)]

    def service(self, name: str) -> list[int]:
        """The daemon's children and theirs of this name: nodectl-listen, nodectl-session, nodectl-fork."""
        assert self.daemon is not None
        found, waiting = [], [self.daemon.pid]
        while waiting:
            pid = waiting.pop()
            with contextlib.suppress(OSError):
                waiting += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split())
                if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == name:
                    found.append(pid)
        return found

    def listener(self) -> int:
        """The process that accepts users' connections."""
        (pid,) = self.service("nodectl-listen")
        return pid

    def remains(self) -> list[str]:
        """What there is of a node that was closed: its directory, its cgroup, processes that were given its paths."""
        found = [path for path in (str(self.dir), self.base) if os.path.exists(path)]
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{name}/cmdline").read_bytes()
                if os.fsencode(self.dir.name) in words:
                    found.append(f"process {name}: {os.fsdecode(words)[-200:]}")
        return found

    def assert_clean(self, patience: float = PATIENCE) -> None:
        """Within `patience` seconds nothing of any step is left."""
        end = time.monotonic() + patience
        while left := self.leftovers() + [str(process) for process in self.processes()]:
            assert time.monotonic() < end, f"left behind: {left}; log: {self.logged()[-2000:]}"
            time.sleep(0.02)

    def close(self) -> None:
        """Ends the daemon and removes what is there, come what may."""
        self.stop(signal.SIGTERM)
        for pid, _ in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for directory, _, _ in os.walk(self.base, topdown=False):
            wait_until(lambda directory=directory: tree.Group(directory).remove(), f"{directory} is empty")
        shutil.rmtree(self.dir, ignore_errors=True)


@contextlib.contextmanager
def running(**config: object) -> Iterator[Node]:
    """A started node; at the end it must be clean."""
    node = Node(**config)
    try:
        yield node.start()
        if node.daemon is not None:
            node.assert_clean()
    finally:
        node.close()


def wait_until(condition: object, what: str, patience: float = PATIENCE) -> None:
    """Polls a condition; fails with `what` when it does not come true in time."""
    end = time.monotonic() + patience
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(0.01)


def wait_for_answer(client: subprocess.Popen[str]) -> None:
    """Until the daemon has answered this `nodectl run`: a task may be quicker. The client has the pipe of its step's
    events then, and needs the daemon no more.
    """

    def has_events() -> bool:
        assert client.poll() is None, client.communicate()
        return any(_is_read_only(client.pid, fd) for fd in _pipes_with_one_end(client.pid))

    wait_until(has_events, "the client has its answer")


def _pipes_with_one_end(pid: int) -> list[str]:
    """Descriptors of pipes of which the process has no other, but for its standard ones."""
    held: dict[str, list[str]] = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if int(fd) > 2:
                held.setdefault(os.readlink(f"/proc/{pid}/fd/{fd}"), []).append(fd)
    return [fds[0] for name, fds in held.items() if name.startswith("pipe:") and len(fds) == 1]


def _is_read_only(pid: int, fd: str) -> bool:
    try:
        flags = Path(f"/proc/{pid}/fdinfo/{fd}").read_text(encoding="ascii").partition("flags:")[2].split()[0]
    except OSError:
        return False
    return int(flags, 8) & os.O_ACCMODE == os.O_RDONLY


def end_again_and_again(process: subprocess.Popen[Any], number: int) -> int:
    """Signal after signal, until it has ended; its status. No faster than Python notes them for one who is busy."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None:
        assert time.monotonic() < end, f"signals {number} do not end it"
        process.send_signal(number)
        time.sleep(0.01)
    return process.returncode


def interrupt(client: subprocess.Popen[str], until: str) -> list[str]:
    """Ctrl-C after Ctrl-C until the client has said that; where two took a second it begins anew. What it said."""
    assert client.stderr is not None
    said: list[str] = []
    while until not in (said or [""])[-1]:
        client.send_signal(signal.SIGINT)
        said.append(client.stderr.readline())
        if "one more within 1 sec to end" in said[-1] and "sent" not in said[-1]:
            said.append(client.stderr.readline())  # how its tasks are
        assert said[-1], f"it ended with {client.wait(PATIENCE)}: {said}"
    return said


def _left_to_init(pid: int) -> bool:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
    return fields[:2] == ["Z", "1"]


def _as(user: pwd.struct_passwd | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
