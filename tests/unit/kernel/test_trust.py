"""Which paths root believes, on real directories with real modes and owners."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nodectl
from nodectl.kernel import trust

# The tests run as any user: their own files count as trusted beside root's.
OWN = frozenset({0, os.geteuid()})


def file_in(directory: Path, name: str = "nodectl.toml") -> Path:
    path = directory / name
    path.write_text("x")
    path.chmod(0o644)
    return path


def blamed(path: Path, owners: frozenset[int] = OWN) -> str:
    with pytest.raises(trust.Untrusted) as caught:
        trust.resolve(str(path), owners)
    return caught.value.path


def test_file_that_only_its_owner_can_change_is_trusted(tmp_path: Path) -> None:
    path = file_in(tmp_path)
    assert trust.resolve(str(path), OWN) == os.path.realpath(path)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_file_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = file_in(tmp_path)
    path.chmod(mode)
    assert blamed(path) == str(path)


def test_directory_that_others_can_write_is_refused_however_far_up(tmp_path: Path) -> None:
    above = tmp_path / "a"
    (above / "b" / "c").mkdir(parents=True)
    path = file_in(above / "b" / "c")
    above.chmod(0o775)
    assert blamed(path) == str(above)


def test_file_of_another_owner_is_refused(tmp_path: Path) -> None:
    path = file_in(tmp_path)
    assert blamed(path, frozenset({4_000_000})) == "/"


def test_sticky_directory_is_passed_to_a_directory_of_root(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "own").mkdir(parents=True)
    shared.chmod(0o1777)
    path = file_in(shared / "own")
    assert trust.resolve(str(path), OWN) == str(path)


def test_sticky_directory_may_not_hold_the_file_itself(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    path = file_in(tmp_path)
    assert blamed(path) == str(path)


def test_sticky_directory_is_not_itself_trusted(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert blamed(tmp_path) == str(tmp_path)


def test_sticky_directory_may_not_hold_a_link(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    link = shared / "link"
    link.symlink_to(file_in(tmp_path))
    shared.chmod(0o1777)
    assert blamed(link) == str(link)


def test_link_is_followed_and_its_target_is_checked(tmp_path: Path) -> None:
    path = file_in(tmp_path)
    link = tmp_path / "link"
    link.symlink_to("../" + tmp_path.name + "/./" + path.name)
    assert trust.resolve(str(link), OWN) == str(path)
    path.chmod(0o666)
    assert blamed(link) == str(path)


def test_dots_behind_a_link_go_up_from_its_target(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    path = file_in(tmp_path / "deep")
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    assert trust.resolve(f"{tmp_path}/link/../{path.name}", OWN) == str(path)


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="a") as caught:
        trust.resolve(str(tmp_path / "a"), OWN)
    assert caught.value.errno == errno.ELOOP


def test_absent_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        trust.resolve(str(tmp_path / "absent"), OWN)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_link_of_another_owner_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file_in(tmp_path))
    os.chown(link, 4_000_000, -1, follow_symlinks=False)
    assert blamed(link) == str(link)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_root_believes_no_file_of_a_user(tmp_path: Path) -> None:
    path = file_in(tmp_path)
    trust.check(str(path))
    os.chown(path, 4_000_000, -1)
    with pytest.raises(trust.Untrusted, match="belongs to uid 4000000 and not to root"):
        trust.check(str(path))


def test_users_may_believe_what_they_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_in(tmp_path)
    path.chmod(0o666)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    trust.check(str(path))


def test_read_gives_the_content_up_to_the_limit(tmp_path: Path) -> None:
    path = file_in(tmp_path)
    path.write_bytes(b"12345")
    assert trust.read(str(path), 5) == b"12345"
    with pytest.raises(OSError, match="longer than 4 bytes"):
        trust.read(str(path), 4)


def test_read_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        trust.read(str(tmp_path / "pipe"), 100)


def test_read_refuses_a_directory(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        trust.read(str(tmp_path), 100)


HEAVY = {
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "glob",
    "importlib.util",
    "inspect",
    "logging",
    "pathlib",
    "re",
    "tomllib",
    "typing",
}


@pytest.mark.parametrize(
    "module",
    [
        "nodectl.kernel.trust",
        "nodectl.plugin_api",
        "nodectl.plugin_host.loader",
        "nodectl.service.config_file.reader",
        "nodectl.spank.plugstack",
    ],
)
def test_import_brings_nothing_heavy(module: str) -> None:
    root = os.path.dirname(os.path.dirname(nodectl.__file__))
    program = f"import sys; sys.path.insert(0, {root!r}); import {module}; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, capture_output=True, text=True)
    assert HEAVY.intersection(done.stdout.split()) == set()


def test_what_others_can_change_or_is_not_there_is_no_trusted_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = file_in(tmp_path, "nvidia-smi")
    program.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not trust.is_trusted(str(program))
    assert not trust.is_trusted(str(tmp_path / "none"))
    assert trust.is_trusted("/")
