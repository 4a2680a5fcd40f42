"""How busy GPUs are, read below a root of its own: files as amdgpu's, and a program in the place of nvidia-smi."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.view.top.gpus import GpuReader


class Clock:
    """Goes on when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def amd(root: Path, card: int, text: str) -> None:
    file = root / f"sys/class/drm/card{card}/device/gpu_busy_percent"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def nvidia(root: Path, script: str) -> None:
    """It counts how often it is run."""
    (root / "proc/driver/nvidia/gpus").mkdir(parents=True)
    program = root / "usr/bin/nvidia-smi"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho $$ >>{root}/runs\n{script}\n")
    program.chmod(0o755)


def runs(root: Path) -> list[int]:
    file = root / "runs"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_cards_of_amd_are_read_in_their_order(tmp_path: Path) -> None:
    for card, text in ((10, "7\n"), (1, "93\n"), (2, "busy\n")):
        amd(tmp_path, card, text)
    assert GpuReader(str(tmp_path)).read() == [93, 7]


def test_machine_without_gpus_is_told_nothing(tmp_path: Path) -> None:
    assert GpuReader(str(tmp_path)).read() == []


def test_nvidia_smi_is_asked_seldom(tmp_path: Path) -> None:
    nvidia(tmp_path, "echo '0, 55'; echo '1, [N/A]'; echo '2, 3'")
    clock = Clock()
    reader = GpuReader(str(tmp_path), clock)
    for _ in range(5):
        assert reader.read() == [55, 3]
        clock.now += 1
    assert len(runs(tmp_path)) == 1
    clock.now += 10
    assert reader.read() == [55, 3]
    assert len(runs(tmp_path)) == 2


def test_program_is_none_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia(tmp_path, "echo '0, 55'")
    (tmp_path / "usr/bin/nvidia-smi").rename(tmp_path / "nvidia-smi")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert GpuReader(str(tmp_path)).read() == []
    assert not runs(tmp_path)


def test_nvidia_smi_that_hangs_is_ended_and_left_alone_for_long(tmp_path: Path) -> None:
    nvidia(tmp_path, "exec sleep 600")
    clock = Clock()
    reader = GpuReader(str(tmp_path), clock)
    assert reader.read() == []
    (hung,) = runs(tmp_path)
    os.waitpid(hung, 0)  # it has been killed
    clock.now += 60
    assert reader.read() == []
    assert runs(tmp_path) == [hung]
