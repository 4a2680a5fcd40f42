"""What a program is linked to, as far as its own file tells; and files that are none, or are made to mislead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.client.mpi_program import look, plugin_for
from unit.client.mpi_programs import linked_to

LIBRARIES = {
    "libmpich.so.12": "pmi2",
    "libmpi.so.12": "pmi2",
    "libmpi.so.40": "pmix",
    "libmpi_mpifh.so.40": "pmix",
    "libmpicalc.so.1": "",
    "libimpi.so": "",
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_library_decides(tmp_path: Path, name: str) -> None:
    program = linked_to(name, tmp_path)
    assert plugin_for(str(program), "/") == LIBRARIES[name]
    assert plugin_for(f"./{program.name}", str(tmp_path)) == LIBRARIES[name]


def test_it_is_looked_for_as_the_shell_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = linked_to("libmpich.so.12", tmp_path)
    other = tmp_path / "first"
    other.mkdir()
    (other / program.name).write_text("not executable")
    monkeypatch.setenv("PATH", f"/nonexistent:{other}:{tmp_path}")
    monkeypatch.setattr("nodectl.client.mpi_program.environ", lambda: os.environ)
    assert plugin_for(program.name, "/") == "pmi2"
    assert plugin_for("no-such-program", "/") == ""


def test_nothing_is_known_of_what_is_no_program(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o755)
    (tmp_path / "script").write_text("#!/bin/sh\nexec ./cpi\n")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "empty").touch(0o755)
    for name in ("pipe", "script", "empty", "missing", "."):
        assert plugin_for(f"{tmp_path}/{name}", "/") == ""


def test_a_file_that_is_cut_or_changed_anywhere_does_no_harm(tmp_path: Path) -> None:
    whole = linked_to("libmpich.so.12", tmp_path).read_bytes()
    path = tmp_path / "changed"
    headers = len(whole[:64]) + 56 * int.from_bytes(whole[56:58], "little")
    variants = [whole[:end] for end in (1, 16, 63, 64, 100, headers, len(whole) // 2)]
    variants += [whole[:at] + b"\xff" * 8 + whole[at + 8 :] for at in range(16, headers, 4)]
    for data in variants:
        path.write_bytes(data)
        path.chmod(0o755)
        assert plugin_for(str(path), "/") in ("", "pmi2")


def test_it_is_not_looked_at_where_a_plugin_was_chosen(tmp_path: Path) -> None:
    program = str(linked_to("libmpich.so.12", tmp_path))
    request: dict[str, object] = {"argv": [program], "cwd": "/", "mpi": "pmix"}
    look(request)
    assert "mpi_linked" not in request
    for chosen in ({}, {"mpi": "none"}):
        request = {"argv": [program], "cwd": "/", **chosen}
        look(request)
        assert request["mpi_linked"] == "pmi2"
