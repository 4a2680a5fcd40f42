"""What the two processes that must start or fork quickly import: nothing that costs milliseconds and is not needed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig

import pytest

COSTLY = {
    "re",
    "json",
    "argparse",
    "logging",
    "threading",
    "asyncio",
    "ctypes",
    "typing",
    "dataclasses",
    "socket",
    "subprocess",
    "pathlib",
}
BOOT = f"import sys; sys.path[:0] = [{sysconfig.get_paths()['purelib']!r}]; "
ENTRIES = {
    # A step on a machine whose service is missing: everything the client imports before it connects.
    "client": ("from nodectl.cli.main import main; main(['--socket', '/nonexistent', 'run', 'true'])", {"enum"}),
    "client's options": (
        "from nodectl.client.run_options import Parser; Parser().parse(['-n2', 'true']); import nodectl.cli.run",
        {"enum"},
    ),
    "forkserver": ("import nodectl.forkserver.main", set()),
    "task": ("import nodectl.task.main, nodectl.stepd.main, nodectl.confine.scripts", set()),
}


def imported(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{BOOT}{code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("entry", ENTRIES)
def test_nothing_costly_is_imported(entry: str) -> None:
    code, more = ENTRIES[entry]
    modules = imported(code)
    assert any(name.startswith("nodectl.") for name in modules)
    assert modules & (COSTLY | more) == set()


def test_the_check_would_notice() -> None:
    assert "re" in imported("import re")
