"""A reader of README and the guides: what they type, as whom, and what of it cannot be typed on the ring's machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vm import pages, service

README = "README.md"
PLACE = Path("/home/alice/followed")
SUDOERS = Path("/etc/sudoers.d/followed")
SITE = Path("/opt/site/plugins")
# A reader's own programs, where a page has them run.
OWN = ("solver", "copy", "program", "prepare", "a", "b", "solve", "train", "infer", "train.sh")
ELSEWHERE = {"flac": 'cp -- "$1" "$3"', "make": "sleep 0.1", "jq": 'cat -- "$3"'}  # installed on the reader's machine
# Of these sections: a big machine with two GPUs that jobs can share, where each job has directories of its own.
BIG = """
real_memory = 65536
gres = ["Name=gpu File=/dev/null Memory=80G", "Name=gpu File=/dev/full Memory=80G", "Name=shard Count=8"]
job_container_type = "job_container/namespace"
"""

NETWORK = "fetches packages of Debian and PyPI, and this machine has no network"
SCREEN = "needs a screen"
NOT_HERE = {
    "sudo ./dev demo": NETWORK,
    "sudo systemd/install": f"{NETWORK}; tests/vm/run begins with it, and gives it a wheel",
    "sudo ./dev deb && sudo apt-get install ./nodectl_*.deb": f"{NETWORK}; test_package.py installs the package",
    "nodectl select try ./first_fit.py select/cons_tres --nodes '4*2s:8c:2t,mem=64G,gpu=4' \\\n"
    "        --generate jobs=1000,users=20,load=1.2 --seed 7 --svg plan.svg": "a minute of emulated CPU time; "
    "tests/unit/simulation/test_guides_plugin.py plays it",
    "sudo nodectl init": "asks on a terminal; tests/rootful/cli/test_init.py answers",
    "nodectl top": SCREEN,
    "nodectl web": SCREEN,
    "systemd-run --user --scope -p Delegate=yes nodectl --user daemon": "needs a session that systemd manages",
    **dict.fromkeys(
        (
            line
            for title in ("Several nodes", "GPUs", "Hosts without Slurm")
            for line in pages.commands("docs/guides/clusters.md")[title]
        ),
        "several machines: tests/cluster",
    ),
}
NOT_HERE |= dict.fromkeys(
    (
        line
        for title in ("Without compiler and headers", "In a checkout")
        for line in pages.commands("docs/guides/without-root.md")[title]
    ),
    f"{NETWORK}; tests/packaging/test_wheels.py installs the wheels",
)
NOT_HERE |= dict.fromkeys(
    pages.commands("docs/guides/without-root.md")["A /tmp for each job"],
    "needs the file that the page has before it; tests/rootful/own_node/test_own_containers.py runs jobs so",
)
NOT_HERE |= dict.fromkeys(
    (line for lines in pages.commands("docs/guides/tools.md").values() for line in lines),
    "needs Jupyter, conda, containers and their like: the page says what was tried with them",
)
NOT_HERE |= dict.fromkeys(
    pages.commands("docs/guides/gpus.md")["Containers in a job"], "needs podman, an image and NVIDIA's tools"
)
NOT_HERE |= dict.fromkeys(
    (
        line
        for title in ("Switch it on", "As a user")
        for line in pages.commands("docs/guides/login-sessions.md")[title]
    ),
    "sessions of sshd, with PAM: test_logins.py",
)
followed: set[tuple[str, str]] = set()
on_a_big_machine: list[tuple[str, str, Callable[[list[str]], None]]] = []


def follows(*sections: tuple[str, str]) -> pytest.MarkDecorator:
    """The test is given the commands of a section that can run here; of several sections one after the other."""
    followed.update(sections)
    printed = [pages.commands(page).get(title, []) for page, title in sections]
    can_run = [[line for line in lines if line not in NOT_HERE] for lines in printed]
    return pytest.mark.parametrize("printed", can_run, ids=[page for page, _ in sections])


def big_machine(page: str, title: str) -> Callable[[Callable[[list[str]], None]], None]:
    """What `test_a_big_machine` does with that section."""
    followed.add((page, title))
    return lambda follow: on_a_big_machine.append((page, title, follow))


def guide(name: str) -> str:
    return f"docs/guides/{name}.md"


def typed(command: str, user: str = "alice") -> subprocess.CompletedProcess[str]:
    return service.run("sh", "-c", f"cd {PLACE}\n{command}", user=user)


def told(command: str, user: str = "alice") -> str:
    """What it prints; it must succeed and have no complaint."""
    done = typed(command, user)
    assert (done.returncode, done.stderr) == (0, ""), (command, done)
    return done.stdout


def job() -> int:
    """One that has just been, of one step."""
    return int(told("nodectl run sh -c 'echo $SLURM_JOB_ID'"))


def of_job(command: str, number: int) -> str:
    """Pages call a job 7, or 8; the step 7.0."""
    return re.sub(r"(?<=[ :=])[78](?=$|\.0|[ \t])", str(number), command)


def write(name: str, text: str = "") -> None:
    """A file of alice's."""
    path = PLACE / name
    path.write_text(text)
    path.chmod(0o755)
    shutil.chown(path, "alice", "alice")
