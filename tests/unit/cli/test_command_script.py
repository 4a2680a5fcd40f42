"""The script behind the command: how Python is started, and which nodectl it finds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "nodectl/bin/nodectl-python"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
MAIN = """
import sys
def command():
    heavy = [name for name in ("re", "site", "sysconfig") if name in sys.modules]
    print(__file__, sys.flags.isolated, sys.flags.no_site, heavy, sys.argv[1:])
    sys.exit(7)
"""


def make_prefix(prefix: Path, packages: str) -> Path:
    """An installation with nothing but the script and a nodectl that tells what it sees."""
    (prefix / "bin").mkdir(parents=True)
    script = Path(shutil.copy(SCRIPT, prefix / "bin/nodectl-python"))
    (prefix / "bin/python3").symlink_to(os.path.realpath(sys.executable))
    command = prefix / packages / "nodectl/cli"
    command.mkdir(parents=True)
    (command / "main.py").write_text(MAIN)
    return script


def run(*argv: str | Path, cwd: Path) -> tuple[int, str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(cwd), "PYTHONSTARTUP": "/nowhere"}
    result = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=60)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize(
    "packages",
    [
        f"lib/{VERSION}/site-packages",
        f"lib64/{VERSION}/site-packages",
        f"lib/{VERSION}/dist-packages",
    ],
)
def test_command_starts_isolated_and_without_site(tmp_path: Path, packages: str) -> None:
    script = make_prefix(tmp_path / "a prefix", packages)
    code, output = run(script, "run", "two words", "", cwd=tmp_path)
    main = tmp_path / "a prefix" / packages / "nodectl/cli/main.py"
    assert (code, output) == (7, f"{main} 1 1 [] ['run', 'two words', '']\n")


def test_command_works_through_a_link(tmp_path: Path) -> None:
    script = make_prefix(tmp_path / "prefix", f"lib/{VERSION}/site-packages")
    link = tmp_path / "nodectl"
    link.symlink_to(script)
    assert run(link, cwd=tmp_path)[0] == 7


def test_nodectl_in_the_working_directory_is_not_taken(tmp_path: Path) -> None:
    script = make_prefix(tmp_path / "prefix", f"lib/{VERSION}/site-packages")
    make_prefix(tmp_path, ".")
    _, output = run(script, cwd=tmp_path)
    assert output.startswith(str(tmp_path / "prefix/lib"))
