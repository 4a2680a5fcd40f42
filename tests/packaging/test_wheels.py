"""The bundle of `./dev wheels`: what pip installs from it, on a machine that has nothing to build with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lint.sources import ROOT

pytestmark = [pytest.mark.packages, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
EVERYTHING = "nodectl[executor,metrics,top,trace,web]"
USER = 9  # news
# In namespaces of its own: takes away compilers, headers, libcap and the network, then becomes a user. Below /mnt, as
# another run of pytest may close the directory that those of its tests are in.
BARE = """
set -eu
mount -t tmpfs none /mnt
mkdir /mnt/wheels
mkdir -m 1777 /mnt/home
mount --bind "$2" /mnt/wheels
for place in /usr/include /usr/lib/gcc; do [ ! -d "$place" ] || mount -t tmpfs none "$place"; done
for file in /usr/bin/gcc /usr/bin/cc /usr/lib/*/libcap.so.2; do
    [ ! -e "$file" ] || mount --bind /dev/null "$(readlink -f "$file")"
done
exec setpriv --reuid="$1" --regid="$1" --clear-groups sh -euc "$3"
"""
# As docs/guides/without-root.md says.
INSTALL = f"""
cd "$HOME"
/usr/bin/python3 -m venv --without-pip nodectl
nodectl/bin/python3 /mnt/wheels/pip.pyz install -q --no-index --find-links /mnt/wheels '{EVERYTHING}'
nodectl/bin/nodectl --user run -n2 --label echo said
nodectl/bin/python3 -Ic 'import nodectl.view.top.app, nodectl.view.web.server'
/usr/bin/python3 -c 'import ctypes; ctypes.CDLL("libcap.so.2")' 2>&1 | tail -n 1
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bundle") / "wheels"
    done = subprocess.run(
        [ROOT / "systemd/build-wheels", made], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tried with Python 3." in done.stdout
    return made


def test_an_ordinary_user_installs_and_runs_it_without_network_compiler_headers_and_libcap(bundle: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", **dict.fromkeys(("HOME", "TMPDIR", "XDG_RUNTIME_DIR"), "/mnt/home")}
    words = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", BARE, "sh"]
    done = subprocess.run(
        [*words, str(USER), bundle, INSTALL], env=environment, cwd="/", capture_output=True, text=True,
        check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert sorted(said[:2]) == ["0: said", "1: said"]
    assert said[2].startswith("OSError: ")  # the machine's own libcap was out of reach


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_it_has_all_that_a_python_needs(bundle: Path, tmp_path: Path, version: str) -> None:
    """As pip chooses for that Python, which need not be here."""
    platforms = {tag for wheel in bundle.glob("*.whl") for tag in wheel.stem.rpartition("-")[2].split(".")} - {"any"}
    words: list[str | Path] = ["download", "-q", "--isolated", "--no-index", "--find-links", bundle, "-d", tmp_path]
    words += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", version]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, *(f"--platform={name}" for name in platforms), EVERYTHING],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("python_prctl-*-cp311-abi3-*.whl"))


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """Of two versions pip would choose one."""
    shutil.copy(ROOT / "LICENSE", tmp_path)
    done = subprocess.run(
        [ROOT / "systemd/build-wheels", tmp_path], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "is not empty" in done.stderr) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["LICENSE"]
