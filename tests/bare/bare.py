"""`./dev test` in a bare Debian: a root with python3 and nothing else, as README promises it to be enough.

    sudo ./dev bare [RING...]

Unpacks a minimal Debian 12, gives it this machine's package mirrors and a clone of HEAD, and runs `./dev test` there,
in mount, PID, UTS and IPC namespaces of its own. CI=true makes a failure of what `./dev test` needs and does not
install. Nothing stays but what was downloaded. When all rings have passed, `tests/bare/passed.toml` says so, for
`tests/lint/test_bare.py`. Exit status: that of `./dev test`; 1 if it could not be run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import watcher
from bare import machine, record
from debian import cache
from debian.making import SUITE, CannotMake, run

TREE = Path(__file__).resolve().parents[2]
BOOTSTRAP = ("mmdebstrap", "--variant=minbase", "--include=python3,ca-certificates", SUITE)
CHECKOUT = "root/nodectl"  # where root would clone it to, and where no other user can go
RUNS, PREFIX = Path("/var/tmp"), "nodectl-bare-"  # a file system for gigabytes, where overlays can be mounted
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "CI": "true",
               record.VARIABLE: "1"}  # fmt: skip
_PATIENCE = 20.0  # seconds for what dies


def main() -> int:
    """The command. Must be root."""
    parser = argparse.ArgumentParser(prog="./dev bare", description="Run ./dev test in a minimal Debian 12.")
    parser.add_argument("rings", nargs="*", metavar="RING", help="lint, unit, ...; without: all, and the record")
    rings = parser.parse_args().rings
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    sweep()
    try:
        with _directory() as directory:
            root = directory / "root"
            _unpack(root)
            commit = _clone(root / CHECKOUT)
            environment = {**ENVIRONMENT, **machine.copy_mirrors(root)}
            tested = record.checksum(root / CHECKOUT)
            status, output = _test(root, environment, rings)
    except (CannotMake, OSError, subprocess.CalledProcessError) as error:
        print(f"bare: {error}", file=sys.stderr)
        return 1
    if status == 0 and not rings:
        date = datetime.datetime.now(datetime.UTC).date()
        record.write(TREE, record.Passed(tested, commit, date.isoformat(), record.rings_of(output)))
        print(f"bare: all rings passed; {record.PLACE} says so: commit it")
    return status


def _leave(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """A run's directory. It goes with the run, however that ends: we remove it, or the watcher, or the next run."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=RUNS))
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)

    def remove() -> None:
        os.close(lock)
        sweep()

    watching, alive = watcher.begin(remove)
    try:
        yield directory
    finally:
        os.close(lock)
        os.close(alive)
        os.waitpid(watching, 0)


def sweep() -> None:
    """Removes what runs that have ended left: their directories, and the cgroups of the nodes that they had."""
    for directory in RUNS.glob(f"{PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(directory)
            except BlockingIOError:
                continue
            finally:
                os.close(lock)


def _remove(directory: Path) -> None:
    """Who was killed with the PID namespace may take a moment to die."""
    nodes = {path.name for path in directory.glob("root/run/nodectl-test-*")}
    end = time.monotonic() + _PATIENCE
    while (left := machine.remove_cgroups(nodes)) and time.monotonic() < end:
        time.sleep(0.1)
    for group in left:
        print(f"bare: {group} is still in use", file=sys.stderr)
    while subprocess.run(["rm", "-rf", "--one-file-system", "--", directory], check=False).returncode:
        if time.monotonic() > end:
            raise OSError(f"{directory} cannot be removed")
        time.sleep(0.1)


def _unpack(root: Path) -> None:
    name = f"bare-{hashlib.sha256(repr(BOOTSTRAP).encode()).hexdigest()[:12]}"
    with cache.kept(cache.directory(), name, _bootstrap) as made:
        root.mkdir()
        run("tar", "-xf", made / "root.tar", "-C", root, "--numeric-owner", "--xattrs", "--exclude=./dev/*")


def _bootstrap(made: Path) -> None:
    began = time.monotonic()
    print("bare: making a minimal Debian", flush=True)
    run(*BOOTSTRAP, made / "root.tar")
    print(f"bare: made in {time.monotonic() - began:.0f} s", flush=True)


def _clone(checkout: Path) -> str:
    """Of what is committed; which commit that is. A repository of another user's is cloned, too."""
    trusting = checkout.parents[1] / "tmp/gitconfig"
    trusting.write_text("[safe]\n\tdirectory = *\n")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": str(trusting)}

    def git(*words: str | Path) -> str:
        return subprocess.run(["git", *words], cwd=TREE, env=environment, stdout=subprocess.PIPE, text=True,
                              check=True).stdout  # fmt: skip

    if changes := git("status", "--porcelain"):
        print(f"bare: HEAD alone is tested, without what is not committed:\n{changes}", end="", flush=True)
    git("clone", "--quiet", "--no-hardlinks", TREE, checkout)
    commit = git("rev-parse", "HEAD").strip()
    trusting.unlink()
    print(f"bare: testing {commit[:12]}", flush=True)
    return commit


def _test(root: Path, environment: dict[str, str], rings: list[str]) -> tuple[int, str]:
    """`./dev test` as the namespaces' work: its exit status and its output, which is shown as it comes."""
    words = [f"/{CHECKOUT}/dev", "test", *(["--rings", ",".join(rings)] if rings else [])]
    unshare = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--uts", "--ipc", "--fork",
               "--kill-child", str(Path(__file__).with_name("inside")), str(root), str(_downloads())]  # fmt: skip
    said = []
    with subprocess.Popen([*unshare, *words], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as running:  # fmt: skip
        try:
            assert running.stdout is not None
            for line in running.stdout:
                said.append(line)
                sys.stdout.write(line)
                sys.stdout.flush()
        except BaseException:
            running.kill()
            raise
    return running.returncode, "".join(said)


def _downloads() -> Path:
    """Packages and wheels as they were downloaded, for the next run; nothing that was built or installed."""
    kept = cache.directory().with_name("nodectl-bare")
    for name in ("apt/partial", "pip"):
        (kept / name).mkdir(parents=True, exist_ok=True)
    shutil.rmtree(kept / "pip/wheels", ignore_errors=True)  # pip builds these itself
    return kept


if __name__ == "__main__":
    sys.exit(main())
