"""The module of system calls, compiled so that arithmetic which C leaves undefined ends it at once."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

KERNEL_C = Path(__file__).parents[2] / "nodectl" / "kernel" / "c"
SOURCES = sorted(set(KERNEL_C.glob("*.c")) - {KERNEL_C / "namespace.c"})
# A trap needs no library of the compiler's.
STRICT = ["-fsanitize=signed-integer-overflow,shift", "-fsanitize-undefined-trap-on-error"]
CALL = """
import importlib.util, sys
specification = importlib.util.spec_from_file_location("nodectl.kernel._kernel", sys.argv[1])
kernel = importlib.util.module_from_spec(specification)
specification.loader.exec_module(kernel)
sys.exit(not kernel.write_row(1, int(sys.argv[2]), '"call":"x"', "0", ""))
"""


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("strict") / "_kernel.so"
    include = f"-I{sysconfig.get_path('include')}"
    command = ["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-DPy_LIMITED_API=0x030B0000", *STRICT, include]
    subprocess.run([*command, "-o", library, *SOURCES], check=True)
    return library


@pytest.mark.parametrize("started", [-(2**63), -1, 0, 2**63 - 1])
def test_row_that_began_at_any_time_is_written_without_an_overflow(strict: Path, started: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CALL, strict, str(started)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    line = json.loads(done.stdout)
    assert line["t"] == started
    assert -(2**63) // 1000 <= line["us"] <= 2**63 // 1000
