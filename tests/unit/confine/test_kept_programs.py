"""Compiled filters outlive a daemon, and hold only for what they were made of."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest

from nodectl.kernel import _kernel
from nodectl.launch.confine import kept_programs
from nodectl.launch.confine.confinement import CAP_SETPCAP
from nodectl.model.confinement_level import DEFAULT
from nodectl.model.wire import lean_json
from nodectl.service.config_file.reader import build
from nodectl.service.daemon.admission import confinement
from nodectl.service.daemon.admission.confinement import ConfinementLevels


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "libseccomp.so.2"
    path.write_bytes(b"a library")
    return path


@pytest.fixture
def kept(tmp_path: Path, source: Path) -> str:
    """What a daemon has kept, where only root can write."""
    path = str(tmp_path / kept_programs.NAME)
    made = {"landlock": 0, "default": "00", **kept_programs.origin([str(source)])}
    kept_programs.keep(path, lean_json.dumps(made).encode("ascii"))
    assert kept_programs.read(path)
    return path


def test_they_are_taken_while_nothing_has_changed(kept: str) -> None:
    assert lean_json.load_object(kept_programs.read(kept))["default"] == "00"
    assert os.stat(kept).st_mode & 0o777 == 0o600
    assert os.listdir(os.path.dirname(kept)).count(kept_programs.NAME) == 1


def test_a_full_disk_leaves_nothing_behind(kept: str) -> None:
    before = Path(kept).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # Python ignores SIGXFSZ
    try:
        with pytest.raises(OSError, match="File too large"):
            kept_programs.keep(kept, b"x" * 8192)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Path(kept).read_bytes() == before
    assert [path.name for path in Path(kept).parent.glob(f"{kept_programs.NAME}*")] == [kept_programs.NAME]


def test_they_are_not_taken_with_another_library(kept: str, source: Path) -> None:
    source.write_bytes(b"a longer library")
    assert kept_programs.read(kept) == b""
    source.unlink()
    assert kept_programs.read(kept) == b""


def test_they_are_not_taken_from_another_installation(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lists may be others. All that it was made of may still be there."""
    ours = []
    for path in kept_programs._OURS:
        ours.append(tmp_path / os.path.basename(path))
        ours[-1].write_bytes(Path(path).read_bytes())
    monkeypatch.setattr(kept_programs, "_OURS", tuple(map(str, ours)))
    assert kept_programs.read(kept) == b""


def test_they_are_not_taken_under_another_kernel(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kernel, "landlock_abi", lambda: 99)
    assert kept_programs.read(kept) == b""


@pytest.mark.parametrize(
    "data", [b"", b'{"default": "0', b"[]", b"{}", b'{"files": {}}', b'{"files": []}', b"\0" * 5000]
)
def test_what_is_broken_is_not_taken(kept: str, data: bytes) -> None:
    Path(kept).write_bytes(data)
    assert kept_programs.read(kept) == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="root believes only what root alone can write")
def test_what_others_could_have_written_is_not_taken(kept: str) -> None:
    os.chmod(kept, 0o666)
    assert kept_programs.read(kept) == b""
    os.chmod(kept, 0o600)
    os.chown(kept, 65534, 65534)
    assert kept_programs.read(kept) == b""


def test_a_daemon_with_kept_programs_compiles_none(kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "ReportingProcess", None)
    monkeypatch.setattr(_kernel, "capabilities", lambda: (CAP_SETPCAP,))

    expected = Path(kept).read_bytes()

    async def act() -> None:
        levels = ConfinementLevels(build({"state_dir": str(tmp_path)}), list, "")
        await levels.ready(DEFAULT)
        assert os.pread(levels.programs, 1 << 16, 0) == expected
        with pytest.raises(PermissionError):
            os.pwrite(levels.programs, b"x", 0)
        await levels.settle()

    asyncio.run(act())
