"""What surrounds a quick command surrounds its task as it would a slow one's: limits, umask, signals, environment; and
rights that are not the caller's are nobody's.
"""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, Node
from rootful.steps.test_quick_way import PYTHON, QUICK

LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_NOFILE: 64,
    resource.RLIMIT_STACK: 1 << 20,
    resource.RLIMIT_FSIZE: 3 << 20,
    resource.RLIMIT_AS: 2 << 30,
    resource.RLIMIT_NPROC: 5000,
}
SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD, signal.SIGTSTP]
WORDS = [
    ["env", "-0"],
    ["cat", "/proc/self/limits"],
    ["grep", "-E", "^(Umask|Sig...|ShdPnd|Cap...|Groups|[UG]id|NoNewPrivs|Seccomp|Cpus_allowed):", "/proc/self/status"],
    ["ls", "/proc/self/fd"],
]


def surroundings(seed: int) -> Callable[[], None]:
    """Of who types a command: some of all that there are, the same for the same seed."""

    def change() -> None:
        chosen = random.Random(seed)  # noqa: S311  # the same in each run
        os.umask(chosen.choice([0, 0o22, 0o777]))
        for number, soft in LIMITS.items():
            if chosen.randrange(2):
                resource.setrlimit(number, (soft, chosen.choice([soft, resource.getrlimit(number)[1]])))
        for number in SIGNALS:
            if chosen.randrange(3) == 0:
                signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, chosen.sample(SIGNALS, 2))
        os.setgroups([])
        os.setgid(NOBODY.pw_gid)
        os.setuid(NOBODY.pw_uid)

    return change


@pytest.mark.parametrize("seed", range(4))
def test_task_is_surrounded_alike(seed: int, shared_node: Node) -> None:
    environment = {"ODD": "a\nb=\u00fc\x01", "BASH_FUNC_x%%": "() { :; }", "EMPTY": "", **shared_node.environment()}
    for words in WORDS:
        found = [
            subprocess.run(
                [*way, "--socket", str(shared_node.socket), "run", "-J", "l\u00fc x", *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd="/",
                env=environment,
                preexec_fn=surroundings(seed),  # one thread
                restore_signals=False,
                timeout=120,
                check=False,
            )
            for way in (QUICK, PYTHON)
        ]
        ours, theirs = ((plain(done.stdout), done.stderr, done.returncode) for done in found)
        assert ours == theirs
        assert ours[2] == 0, ours


def plain(text: bytes) -> bytes:
    """Without the numbers of jobs and processes."""
    return re.sub(rb"(?<=\0)(\w*(?:JOB_ID|JOBID|PID|TIME|ADDR|TMPDIR)\w*)=[^\0]*", rb"\1=", text)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody can reach."""
    found = Path(tempfile.mkdtemp(prefix="nodectl-test-", dir="/run"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


@pytest.mark.parametrize("mode", ["u+s", "g+s"])
def test_program_that_was_given_its_owner_s_rights_does_nothing_with_them(mode: str, place: Path) -> None:
    """A set-user-ID script has no rights of its owner; as a program, it would have given all of them away."""
    script = (
        'mount -t tmpfs -o suid,exec,mode=755 none "$1" && cp "$2" "$1"/nodectl && cd "$1" && '
        'printf "#!/bin/sh\\necho reached\\n" >nodectl-python && chmod 755 nodectl nodectl-python && '
        'chmod "$3" nodectl &&'
        " exec setpriv --reuid nobody --regid nogroup --clear-groups ./nodectl --version"
    )
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(place), QUICK[0], mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr == "nodectl: error: this program must not be set-user-ID or set-group-ID: chmod ug-s\n"


def test_caller_of_two_users_has_python(shared_node: Node) -> None:
    words = ["--socket", str(shared_node.socket), "run", "id", "-ru"]
    helper = "import os, sys; os.setresuid(int(sys.argv[1]), 0, 0); os.execv(sys.argv[2], sys.argv[2:])"
    found = [
        subprocess.run(
            ["/usr/bin/python3", "-c", helper, str(NOBODY.pw_uid), *way, *words], capture_output=True, check=False
        )
        for way in (QUICK, PYTHON)
    ]
    assert found[0].stdout == found[1].stdout
    assert found[0].returncode == found[1].returncode == 0, found
