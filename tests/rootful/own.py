"""A node of an ordinary user's own: `nodectl --user`, with a home of its own."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodectl.launch.cgroup import tree
from nodectl.model.wire import framing
from rootful.node import BOOT, FORKS, NOBODY, PATH, PATIENCE, wait_until

GIVEN_UP = 2 * PATIENCE
CONFIGURATION = "nodectl.toml"
_ALWAYS = {"warm_runner_time": 20, **FORKS}  # a busy machine finds a runner that waits


class OwnNode:
    """The places of one user's node, and its daemon where `start` was called."""

    def __init__(self, user: pwd.struct_passwd = NOBODY) -> None:
        self.user = user
        self.dir = Path(tempfile.mkdtemp(prefix="nodectl-own-", dir="/run"))
        self.dir.chmod(0o755)
        self.home, self.runtime = self.dir / "home", self.dir / "runtime"
        for path in (self.home, self.runtime):
            path.mkdir(mode=0o700)
            os.chown(path, user.pw_uid, user.pw_gid)
        self.log = self.home / "log"
        self.daemon: subprocess.Popen[bytes] | None = None
        self.cgroup: tree.Group | None = None
        self.configure(CONFIGURATION, "")

    @property
    def socket(self) -> Path:
        return self.runtime / "nodectl" / "nodectl.sock"

    def configure(self, name: str, text: str) -> Path:
        """Writes nodectl.toml, or a file beside it, as its user would."""
        path = self.home / ".config" / "nodectl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        always = "".join(f"{key} = {json.dumps(value)}\n" for key, value in _ALWAYS.items())
        path.write_text(always + text if name == CONFIGURATION else text, encoding="utf-8")
        return path

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-IS", "-c", BOOT.format(path=PATH), *words]

    def how(self, user: pwd.struct_passwd | None = None) -> dict[str, Any]:
        """Who runs a command, where, with what environment."""
        user = user or self.user
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.runtime)}
        ids = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        return {"env": environment, "cwd": str(self.home), **ids}

    def nodectl(self, *words: str, **how: Any) -> subprocess.CompletedProcess[str]:
        """`nodectl --user ...` to its end."""
        return subprocess.run(
            self.words("--user", *words), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            timeout=GIVEN_UP, **{**self.how(), **how},
        )  # fmt: skip

    def popen(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words("--user", *words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, **self.how(),
        )  # fmt: skip

    def delegate(self) -> tree.Group:
        """A cgroup of the user's, in which the daemon will start."""
        group = tree.Group(f"{tree.find_mount()}/{self.dir.name}").make()
        self.cgroup = group.child("delegated").make()
        for name in ("", "/cgroup.procs", "/cgroup.subtree_control"):
            os.chown(f"{self.cgroup.full_path}{name}", self.user.pw_uid, self.user.pw_gid)
        return self.cgroup

    def start(self) -> OwnNode:
        """The daemon; it listens when this returns."""
        words = self.words("--user", "daemon")
        if self.cgroup is not None:
            procs = f"{self.cgroup.full_path}/cgroup.procs"
            enter = "import os, sys; open(sys.argv[1], 'w').write('0'); ids = [int(i) for i in sys.argv[2:4]]; "
            enter += "os.setgroups([]); os.setresgid(*[ids[1]] * 3); os.setresuid(*[ids[0]] * 3); "
            enter += "os.execv(sys.argv[4], sys.argv[4:])"
            ids = [str(self.user.pw_uid), str(self.user.pw_gid)]
            words = [sys.executable, "-IS", "-c", enter, procs, *ids, *words]
        how = {name: value for name, value in self.how().items() if self.cgroup is None or name in ("env", "cwd")}
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **how)
        wait_until(self._answers, "the user's own daemon listens")
        return self

    def _answers(self) -> bool:
        assert self.daemon is not None
        assert self.daemon.poll() is None, self.logged()
        try:
            with contextlib.closing(framing.connect(str(self.socket))) as sock:
                sock.settimeout(PATIENCE)
                framing.send(sock, {"method": "org.nodectl.Hello", "parameters": {}})
                return framing.receive(sock, framing.Inbox(1 << 16)) is not None
        except OSError:  # not yet there, or the socket of a daemon that was killed
            return False

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.daemon is not None:
            self.daemon.send_signal(number)
            self.daemon.wait(PATIENCE)
            self.daemon = None

    def logged(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        self.stop()
        if self.cgroup is not None:
            top = os.path.dirname(self.cgroup.full_path)
            for directory, _, _ in os.walk(top, topdown=False):
                wait_until(lambda directory=directory: tree.Group(directory).remove(), f"{directory} is empty")
        shutil.rmtree(self.dir)


@contextlib.contextmanager
def own_node(user: pwd.struct_passwd = NOBODY, *, delegated: bool = False, started: bool = True) -> Iterator[OwnNode]:
    """One for a test."""
    node = OwnNode(user)
    try:
        if delegated:
            node.delegate()
        yield node.start() if started else node
        if started:
            assert "Traceback" not in node.logged()
    finally:
        node.close()
