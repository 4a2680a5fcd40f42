"""A login session without an sshd: a process that opens a session with libpam, as sshd's process of a connection does.

PAM's files are the test's own. The process tells what PAM answered, and then runs lines of shell.
"""

from __future__ import annotations

import contextlib
import json
import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from needs import lacks_library
from rootful.node import PATIENCE, Node

MISSING = lacks_library("libpam.so.0")
_SERVICE = "nodectl-test"
_PROCESS = """
import ctypes, json, os, subprocess, sys

directory, service, user = (os.fsencode(word) for word in sys.argv[1:4])
uid = int(sys.argv[4])

class Message(ctypes.Structure):
    _fields_ = [("style", ctypes.c_int), ("text", ctypes.c_char_p)]

Conversation = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.POINTER(Message)),
                                ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)

class Converse(ctypes.Structure):
    _fields_ = [("function", Conversation), ("data", ctypes.c_void_p)]

libc, pam = ctypes.CDLL(None), ctypes.CDLL("libpam.so.0")
libc.calloc.restype = ctypes.c_void_p
said = []

@Conversation
def converse(count, messages, responses, _):
    said.extend(messages[number].contents.text.decode() for number in range(count))
    responses[0] = libc.calloc(count, 16)
    return 0

handle = ctypes.c_void_p()
assert pam.pam_start_confdir(service, user, ctypes.byref(Converse(converse)), directory, ctypes.byref(handle)) == 0
code = pam.pam_open_session(handle, 0)

def tell(**facts):
    print(json.dumps(facts), flush=True)

tell(code=code, said=said)
for line in sys.stdin:
    done = subprocess.run(["sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, text=True, user=uid)
    tell(status=done.returncode, out=done.stdout, err=done.stderr)
if code == 0:
    pam.pam_close_session(handle, 0)
"""


class LoginSession:
    """A session that has begun: what PAM answered (0 is a session), and what modules said to the user. Where its
    process was killed before, the code is that of its end.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        told = self._read() or {"code": process.wait(PATIENCE), "said": []}
        self.code: int = told["code"]
        self.said: str = "\n".join(told["said"])

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def run(self, line: str) -> str:
        """What a line of shell prints in the session, as the user."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        told = self._read()
        assert told, "the session was killed"
        assert told["status"] == 0, told
        return str(told["out"]).strip()

    def place(self) -> str:
        """The cgroup of what it runs."""
        return self.run("grep ^0:: /proc/self/cgroup").removeprefix("0::")

    def end(self) -> int:
        """Its exit status when it is left, or was killed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def login(node: Node, user: pwd.struct_passwd, within: str = "") -> Iterator[LoginSession]:
    """A session of this user with the line of the guide; `within`: a cgroup's path in which it begins."""
    files = node.dir / "pam.d"
    files.mkdir(exist_ok=True)
    helper = node.dir / "login-helper"
    helper.write_text(f'#!/bin/sh\nexec {shlex.join(node.command("login"))} "$@"\n', encoding="utf-8")
    helper.chmod(0o755)
    (files / _SERVICE).write_text(f"session required pam_exec.so quiet stdout {helper} --pam\n", encoding="ascii")
    words = [sys.executable, "-IS", "-c", _PROCESS, str(files), _SERVICE, user.pw_name, str(user.pw_uid)]
    if within:
        words = ["sh", "-c", f'echo $$ >{shlex.quote(within)}/cgroup.procs; exec "$@"', "sh", *words]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path("/")) as process:
        try:
            yield LoginSession(process)
        finally:
            process.kill()
