"""The C sources compile for a machine that is not this one."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from needs import need

PACKAGE = Path(__file__).parents[2] / "nodectl"
SOURCES = sorted([*PACKAGE.glob("kernel/c/*.c"), *PACKAGE.glob("spank/c/*.c")])
HEADERS = Path(sysconfig.get_path("include"))
COMPILER = "aarch64-linux-gnu-gcc"


@pytest.fixture(scope="module", autouse=True)
def _machine() -> None:
    """Skips where there is no compiler for that machine, or none of its C library's headers."""
    need(COMPILER)
    words = [COMPILER, "-fsyntax-only", "-x", "c", "-"]
    if subprocess.run(words, input=b"#include <unistd.h>\n", capture_output=True, check=False).returncode:
        pytest.skip(f"no C library's headers for {COMPILER} here")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: "/".join(source.parts[-3:]))
def test_c_source_compiles_for_aarch64(source: Path, tmp_path: Path) -> None:
    # Python's own configuration is the same for every machine of 64 bits as far as the stable ABI goes.
    configuration = next(HEADERS.parent.glob(f"*/{HEADERS.name}/pyconfig.h"), HEADERS / "pyconfig.h")
    place = tmp_path / "aarch64-linux-gnu" / HEADERS.name
    place.mkdir(parents=True)
    shutil.copy(configuration, place / "pyconfig.h")
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]
    command = [COMPILER, "-std=gnu11", *warnings, "-O2", "-fPIC", "-DPy_LIMITED_API=0x030B0000"]
    include = [f"-I{place}" for place in (tmp_path, HEADERS, PACKAGE / "include", PACKAGE / "kernel" / "c")]
    done = subprocess.run(
        [*command, *include, "-c", source, "-o", tmp_path / "it.o"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
