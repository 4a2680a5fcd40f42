"""What a purge takes away: nodectl's own files, and nothing that a job's container had bound into it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from lint.sources import ROOT

pytestmark = [pytest.mark.packages, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
SCRIPTS = ("systemd/debian/nodectl.postrm", "systemd/uninstall")
BOUND = """
set -eu
mkdir -p "$1/containers/7/dirs/data" "$1/containers/7/ns"
mount --bind "$1/containers/7" "$1/containers/7"
mount --bind "$2" "$1/containers/7/dirs/data"
touch "$1/containers/7/ns/mnt" && mount --bind /proc/self/ns/uts "$1/containers/7/ns/mnt"
"""


def removed(script: str, directory: Path, data: Path, *, busy: bool) -> str:
    """Removes the directory as that script does, in a mount namespace of its own; what it says."""
    found = re.search(r"^remove\(\) \{.*?^\}\n", (ROOT / script).read_text(), re.MULTILINE | re.DOTALL)
    assert found
    held = 'exec 9<"$1/containers/7/dirs/data/file"\n' if busy else ""
    code = f'{BOUND}{held}{found.group()}remove "$1"'
    words = ("unshare", "--mount", "sh", "-c", code, "sh", str(directory), str(data))
    return subprocess.run(words, stderr=subprocess.PIPE, text=True, check=True, timeout=60).stderr


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("busy", [False, True])
def test_what_a_container_had_of_the_site_is_not_removed(tmp_path: Path, script: str, busy: bool) -> None:
    directory, data = tmp_path / "nodectl", tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("of the site")
    said = removed(script, directory, data, busy=busy)
    assert (data / "file").read_text() == "of the site"
    assert directory.exists() == busy
    assert (f"{directory} stays" in said) == busy
