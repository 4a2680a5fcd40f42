"""The host's side of `./dev bare`: mirrors, what a killed run leaves, the record; nothing is installed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from bare import bare, machine, record

OUTPUT = """\
--- ring lint ---
ring      result    seconds     CPU  tests
nobody    passed          9       1  1 passed

ring      result    seconds     CPU  tests
lint      passed         62      49  85 passed
unit      passed        202     301  8100 passed, 3 skipped
cluster   skipped         0       0  not root

the 20 slowest tests
   12.0 s  unit      tests/unit/test_one.py::test_is_slow
"""


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    passed = record.Passed("12ab", "34cd", "2026-01-31", {"lint": 62, "unit": 202})
    (tmp_path / "tests/bare").mkdir(parents=True)
    record.write(tmp_path, passed)
    assert record.read(tmp_path) == passed


def test_rings_and_their_seconds_are_those_of_the_last_table() -> None:
    assert record.rings_of(OUTPUT) == {"lint": 62, "unit": 202}
    assert record.rings_of("dev: failed: apt-get update\n") == {}


def test_checksum_is_another_when_a_file_that_decides_is(tmp_path: Path) -> None:
    found = [record.checksum(tmp_path)]
    for name in ("dev", "systemd/distribution", "tests/slurm/packages.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        for text in ("as it was", "changed"):
            (tmp_path / name).write_text(text)
            found.append(record.checksum(tmp_path))
    assert len(set(found)) == len(found)


def test_directory_of_a_run_that_was_killed_is_removed_and_that_of_one_that_lives_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare, "RUNS", tmp_path)
    lives, killed, other = (tmp_path / name for name in ("nodectl-bare-1", "nodectl-bare-2", "of-somebody"))
    for directory in (lives, killed, other):
        (directory / "root/run").mkdir(parents=True)
    lock = os.open(lives, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        bare.sweep()
    finally:
        os.close(lock)
    assert sorted(tmp_path.iterdir()) == [lives, other]


def test_mirrors_that_are_directories_are_found_in_words_and_files(tmp_path: Path) -> None:
    index, links = tmp_path / "pypi/simple", tmp_path / "wheels"
    for directory in (index, links):
        directory.mkdir(parents=True)
    root = tmp_path / "root"
    root.mkdir()
    machine.lay_out(root, [f"[global]\nfind-links = {links}\nindex-url = file://{index}", str(links), "https://a.b/c"])
    laid = {os.readlink(link) for link in (root / "mirrors").iterdir()}
    assert laid == {str(index.parent), str(links)}  # the files of an index lie beside it
    assert all((root / path[1:]).is_dir() for path in laid)
