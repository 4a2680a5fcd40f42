"""The Container Device Interface: what the site says of its devices, and what a step is told of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from nodectl.placement.machine import cdi, detected_devices
from nodectl.placement.machine.declared_devices import Device


def nodes(*numbers: int) -> dict[str, Any]:
    return {"containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{number}"} for number in numbers]}}


SITE = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": "all", **nodes(0, 1)},
        {"name": "0", **nodes(0)},
        {"name": "1", **nodes(1)},
        {"name": "GPU-5e", **nodes(1)},
    ],
    "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [{"path": "/dev/nvidiactl"}],
        "mounts": [{"hostPath": "/usr/bin/nvidia-smi", "containerPath": "/usr/bin/nvidia-smi"}],
    },
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "run/cdi").mkdir(parents=True)
    return tmp_path


def write(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    path.chmod(0o644)
    return path


def paths(edits: dict[str, Any]) -> list[str]:
    return [node["path"] for node in edits.get("deviceNodes", ())]


def test_devices_of_the_sites_files_are_declared_each_once(root: Path) -> None:
    write(root / "etc/cdi/nvidia.json", SITE)
    found = detected_devices.of(["AutoDetect=cdi", "Name=shard Count=4"], str(root))
    assert [(one.key, one.file, one.shards) for one in found] == [
        ("gpu:0", "/dev/nvidia0", 2),
        ("gpu:1", "/dev/nvidia1", 2),
    ]


def test_a_step_is_told_of_its_devices_and_of_no_others(root: Path) -> None:
    write(root / "etc/cdi/nvidia.json", SITE)
    held = [
        Device("gpu", 1, file="/dev/nvidia1", part="/shard:1"),
        Device("gpu", 7, file="/dev/own", also=("/dev/own2",)),
    ]
    spec = cdi.spec_of(held, cdi.read(str(root)))
    assert spec["kind"] == "nodectl.org/gpu"
    assert {one["name"]: paths(one["containerEdits"]) for one in spec["devices"]} == {
        "1": ["/dev/nvidia1"], "7": ["/dev/own", "/dev/own2"], "all": ["/dev/nvidia1", "/dev/own", "/dev/own2"],
    }  # fmt: skip
    assert spec["containerEdits"] == SITE["containerEdits"]


def test_a_device_of_both_directories_is_that_of_run(root: Path) -> None:
    write(root / "etc/cdi/a.json", SITE)
    write(root / "run/cdi/b.json", {"kind": "nvidia.com/gpu", "devices": [{"name": "0", **nodes(5)}]})
    assert [one.files for one in cdi.read(str(root)) if one.name == "0"] == [["/dev/nvidia5"]]


@pytest.mark.parametrize(
    "content",
    [
        "", "[", "[]", "{}", "[" * 100_000, '{"kind": 1, "devices": [{"name": "0"}]}',
        '{"kind": "a/gpu", "devices": {}}',
        '{"kind": "a/gpu", "devices": [1, {"name": 2}, {"name": "x", "containerEdits": []}]}',
        '{"kind": "a/gpu", "devices": [{"name": "0", "containerEdits": {"deviceNodes": [1, {"path": null}]}}]}',
    ],
)  # fmt: skip
def test_a_malformed_file_declares_no_device(root: Path, content: str) -> None:
    write(root / "etc/cdi/bad.json", content)
    write(root / "etc/cdi/good.json", SITE)
    assert len(cdi.devices(cdi.read(str(root)))) == 2


def test_a_file_that_others_can_write_is_not_read(root: Path) -> None:
    write(root / "etc/cdi/a.json", SITE).chmod(0o666)
    assert cdi.read(str(root)) == []
    write(root / "etc/cdi/a.yaml", "kind: nvidia.com/gpu\n")
    assert cdi.read(str(root)) == []


def test_an_instance_of_mig_has_the_edits_of_no_other_device() -> None:
    def entry(name: str, *files: str) -> dict[str, Any]:
        return {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in files]}}

    caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in range(21, 25)]
    site = {
        "kind": "nvidia.com/gpu",
        "devices": [
            entry("0", "/dev/nvidia0"),
            entry("0:0", "/dev/nvidia0", *caps[:2]),
            entry("0:1", "/dev/nvidia0", *caps[2:]),
            entry("all", "/dev/nvidia0", *caps),
        ],
    }
    described = list(cdi._described(site))
    for also in (caps[:2], caps[2:], caps[1:3]):
        spec = cdi.spec_of([Device("gpu", 0, file="/dev/nvidia0", also=tuple(also))], described[:3])
        assert paths(spec["devices"][0]["containerEdits"]) == ["/dev/nvidia0", *also]
    spec = cdi.spec_of([Device("gpu", 0, file="/dev/nvidia0")], described)
    assert paths(spec["devices"][0]["containerEdits"]) == ["/dev/nvidia0"]


def test_the_sites_files_are_read_again_where_one_has_changed_and_only_there(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(root / "etc/cdi/nvidia.json", SITE)
    read = Mock(wraps=cdi._content)
    monkeypatch.setattr(cdi, "_content", read)
    site = cdi.Site(str(root))
    first = site.read()
    assert [one.name for one in first] == ["all", "0", "1", "GPU-5e"]
    assert site.read() is first
    assert read.call_count == 1
    write(path, SITE | {"devices": SITE["devices"][:2]})  # type: ignore[index]
    assert [one.name for one in site.read()] == ["all", "0"]
    other = write(root / "run/cdi/amd.json", {"kind": "amd.com/gpu", "devices": [{"name": "7", **nodes(7)}]})
    assert [one.name for one in site.read()] == ["all", "0", "7"]
    other.chmod(0o666)
    assert [one.name for one in site.read()] == ["all", "0"], "others can write it now"
    path.unlink()
    assert site.read() == []
