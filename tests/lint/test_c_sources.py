"""The order of the C files: each calls only what stands below it, as the top of its folder's header says."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from needs import need

pytestmark = pytest.mark.lint

PACKAGE = Path(__file__).resolve().parents[2] / "nodectl"
KERNEL_C, SPANK_C, COMMAND_C = (PACKAGE / name / "c" for name in ("kernel", "spank", "client"))
INCLUDE = [f"-I{place}" for place in (sysconfig.get_path("include"), PACKAGE / "include", KERNEL_C)]
FLAGS = ["-std=gnu11", "-O0", "-DPy_LIMITED_API=0x030B0000", *INCLUDE]
WARNINGS = ["-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror"]
FILE_LINES = 400
HEADERS = [KERNEL_C / "kernel.h", SPANK_C / "host.h", COMMAND_C / "quick.h"]
ORDER = re.compile(r"^ \*   (\w+\.c) ", re.MULTILINE)


def order_of(header: Path) -> list[str]:
    return ORDER.findall(header.read_text(encoding="ascii").partition("*/")[0])


def upward_calls(folder: Path, order: list[str], scratch: Path) -> list[str]:
    """What a file of the order takes from a file above it, by nm(1)."""
    sources = [folder / name for name in order]
    subprocess.run(["cc", *FLAGS, "-c", *sources], cwd=scratch, check=True)
    owners: dict[str, int] = {}
    users: list[tuple[str, int]] = []
    for place, source in enumerate(sources):
        command = ["nm", "--format=posix", f"{source.stem}.o"]
        listing = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=True).stdout
        for name, kind, *_ in map(str.split, listing.splitlines()):
            if kind == "U":
                users.append((name, place))
            elif kind.isupper():
                owners[name] = place
    found = [(name, order[place], order[owners[name]]) for name, place in users if owners.get(name, place) < place]
    return [f"{user} uses {name} of {owner}" for name, user, owner in found]


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_c_file_calls_only_what_stands_below_it(header: Path, tmp_path: Path) -> None:
    need("cc", "nm")
    assert upward_calls(header.parent, order_of(header), tmp_path) == []


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_c_file_has_its_place_in_the_order(header: Path) -> None:
    assert sorted(order_of(header)) == sorted(path.name for path in header.parent.glob("*.c"))


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_c_files_compile_without_a_warning(header: Path, tmp_path: Path) -> None:
    """Here, and not where it is installed: another compiler may know of more that could be wrong."""
    need("cc")
    sources = [header.parent / name for name in order_of(header)]
    subprocess.run(["cc", *FLAGS, *WARNINGS, "-c", *sources], cwd=tmp_path, check=True)


def test_floor_of_the_bench_compiles_without_a_warning(tmp_path: Path) -> None:
    need("cc")
    source = PACKAGE.parent / "tests/bench/floor.c"
    subprocess.run(["cc", *FLAGS, *WARNINGS, "-c", source], cwd=tmp_path, check=True)


def test_no_c_file_is_longer_than_can_be_kept_in_mind() -> None:
    files = [path for folder in (KERNEL_C, SPANK_C, COMMAND_C) for path in folder.iterdir()]
    assert not [path.name for path in files if len(path.read_text(encoding="ascii").splitlines()) > FILE_LINES]


def test_the_check_would_notice(tmp_path: Path) -> None:
    (tmp_path / "above.c").write_text("int below(void);\nint above(void) { return below(); }\n")
    (tmp_path / "below.c").write_text("int above(void);\nint below(void) { return above(); }\n")
    assert upward_calls(tmp_path, ["above.c", "below.c"], tmp_path) == ["below.c uses above of above.c"]
