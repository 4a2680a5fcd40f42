"""What `python -m build` makes of the tree: an archive of sources, and of that a wheel, which PyPI would take."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from lint.sources import ROOT, tracked_files
from needs import lacks
from nodectl import __version__

pytestmark = pytest.mark.packages


def run(*words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", *words], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with both, made of a copy: setuptools leaves files in a tree."""
    scratch = tmp_path_factory.mktemp("distributions")
    for path in tracked_files():
        copy = scratch / "tree" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    (scratch / "tree/nodectl/plugins").symlink_to("../plugins")
    run("build", "--no-isolation", "--outdir", scratch / "dist", scratch / "tree")
    return scratch / "dist"


def test_twine_has_no_complaint(built: Path) -> None:
    checked = run("twine", "--no-color", "check", "--strict", *built.iterdir())
    assert checked.count("PASSED") == 2


def test_wheel_has_what_is_no_python_and_its_types(built: Path) -> None:
    (wheel,) = built.glob(f"nodectl-{__version__}-cp311-abi3-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = Parser().parsestr(archive.read(f"nodectl-{__version__}.dist-info/METADATA").decode())
    assert {
        "nodectl/py.typed", "nodectl/model/wire/org.nodectl.varlink", "nodectl/include/slurm/spank.h",
        "nodectl/plugins/task/affinity.py", "nodectl/kernel/_kernel.abi3.so", "nodectl/spank/libslurm/libslurm.so.38",
        f"nodectl-{__version__}.data/scripts/nodectl", f"nodectl-{__version__}.data/scripts/nodectl-python",
        f"nodectl-{__version__}.dist-info/licenses/LICENSE",
    } <= names  # fmt: skip
    assert not [name for name in names if name.endswith((".c", ".pyc")) or name.startswith("tests/")]
    assert (metadata["License-Expression"], metadata["Version"]) == ("MIT", __version__)
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


def test_archive_of_sources_has_what_the_debian_package_is_made_of(built: Path) -> None:
    with tarfile.open(built / f"nodectl-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"NEWS.md", "nodectl/spank/c/host.h", "systemd/build-deb", "systemd/debian/rules"} <= names


@pytest.mark.skipif(lacks("readelf"), reason="no readelf here")
def test_wheel_runs_on_other_distributions(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert "manylinux_2_" in run("auditwheel", "show", wheel)
