"""Parts of a device: whatever jobs come and go, no shard and no MiB of a device is given twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nodectl.model import device_part
from nodectl.model.device_part import ANYONE, FREE, DevicePart, Load
from nodectl.placement.machine.declared_devices import Device, declared

KEYS = [
    ("gpu:0", None),
    ("gpu:0/shard:2", DevicePart(2, 0)),
    ("gpu:0/mem:512M", DevicePart(0, 512)),
    ("gpu:0/shard:2/mem:512M", DevicePart(2, 512)),
]
_DEVICES = {
    device.key: device
    for device in (
        Device("gpu", 0, shards=5, memory=1003),
        Device("gpu", 1, shards=3),
        Device("gpu", 2, memory=700),
        Device("gpu", 3),
        Device("gpu", 4, shards=5, memory=80, one_user=True),
    )
}


@pytest.mark.parametrize(("key", "part"), KEYS)
def test_a_key_says_which_part_of_the_device_is_held(key: str, part: DevicePart | None) -> None:
    assert (device_part.device_of(key), device_part.part_of(key)) == ("gpu:0", part)
    assert device_part.is_key(key)


@pytest.mark.parametrize(
    "key", ["gpu:0/", "gpu:0/shard:0", "gpu:0/shard:-1", "gpu:0/mem:5", "gpu:0/mem:5M/shard:1", "a/b"]
)
def test_a_malformed_key_holds_the_whole_device(key: str) -> None:
    assert device_part.part_of(key) is None
    assert not device_part.is_key(key)


@given(st.integers(1, 1024), st.integers(0, 1 << 20))
def test_as_many_shards_as_a_device_has_fit_into_its_memory(shards: int, memory: int) -> None:
    device, load = Device("gpu", 0, shards=shards, memory=memory), FREE
    for _ in range(shards):
        part = device_part.part_for(device, 1, 0)
        assert part is not None
        assert not device_part.conflict(device, load, part, ANYONE)
        load = load.plus(part)
    assert device_part.conflict(device, load, DevicePart(1, 0), ANYONE) == "has 0 shards free, and not 1"


class Account(RuleBasedStateMachine):
    """Jobs that take whole devices and parts, end, and are counted again from their keys, as after a restart."""

    @initialize()
    def begin(self) -> None:
        self.jobs: list[tuple[str, int]] = []
        self.loads: dict[str, Load] = {}

    @rule(
        device=st.sampled_from(sorted(_DEVICES)), shards=st.integers(0, 6), memory=st.integers(0, 1100),
        user=st.integers(0, 2),
    )  # fmt: skip
    def arrives(self, device: str, shards: int, memory: int, user: int) -> None:
        known = _DEVICES[device]
        part = device_part.part_for(known, shards, memory) if shards or memory else None
        if part is None and (shards or memory):
            assert shards > known.shards or memory > known.memory
            return
        key = f"{device}{part or ''}"
        why = device_part.clash(_DEVICES.values(), self.loads, [key], user)
        assert bool(why) == (not self.fits(device, part, user)), why
        if not why:
            self.jobs.append((key, user))
            self.loads[device] = self.loads.get(device, FREE).plus(part, user)

    def fits(self, device: str, part: DevicePart | None, user: int) -> bool:
        here = [(key, who) for key, who in self.jobs if device_part.device_of(key) == device]
        parts = [device_part.part_of(key) for key, _ in here]
        if None in parts or (part is None and here):
            return False
        if part is None:
            return True
        if _DEVICES[device].one_user and {who for _, who in here} - {user}:
            return False
        shards = part.shards + sum(one.shards for one in parts if one)
        memory = part.memory + sum(one.memory for one in parts if one)
        return shards <= _DEVICES[device].shards and memory <= _DEVICES[device].memory

    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        if self.jobs:
            key, _ = self.jobs.pop(data.draw(st.integers(0, len(self.jobs) - 1)))
            name = device_part.device_of(key)
            self.loads[name] = self.loads[name].minus(device_part.part_of(key))

    @rule()
    def restarts(self) -> None:
        self.loads = device_part.loads_of(self.jobs)

    @invariant()
    def gives_nothing_twice(self) -> None:
        for name, load in getattr(self, "loads", {}).items():
            device = _DEVICES[name]
            assert load.wholes + load.is_shared <= 1
            assert load.shards <= device.shards
            assert load.memory <= device.memory
            if not load.is_shared:
                assert load.user == ANYONE


Account.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestAccount = Account.TestCase


def test_a_device_that_two_users_share_after_a_change_of_the_rule_is_closed_until_it_is_free() -> None:
    device = _DEVICES["gpu:4"]
    load = FREE.plus(DevicePart(1, 16), 1000).plus(DevicePart(1, 16), 1001)
    assert device_part.conflict(device, load, DevicePart(1, 16), 1000) == "is shared by another user's jobs"
    assert device_part.conflict(device, load.minus(DevicePart(1, 16)), DevicePart(1, 16), 1000)
    assert not device_part.conflict(
        device, load.minus(DevicePart(1, 16)).minus(DevicePart(1, 16)), DevicePart(1, 16), 1000
    )


def test_what_is_held_is_counted_as_slurm_counts_it() -> None:
    held = ["gpu:0", "gpu:3", "gpu:1/shard:2/mem:512M", "gpu:2/mem:100M"]
    assert device_part.as_tres(held) == {"gpu": "2", "shard": "2", "gpumem": "612M"}
    assert device_part.counted({"gpu": 2, "fpga": 1}) == 3
    assert device_part.counted({"shard:a100": 4, "gpumem": 512}) == 1


@pytest.mark.parametrize(
    ("lines", "shards"),
    [
        (["Name=gpu Count=4", "Name=shard Count=20"], [5, 5, 5, 5]),
        (["Name=gpu Count=3", "Name=shard Count=4"], [2, 1, 1]),
        (["Name=gpu File=/dev/null,/dev/zero", "Name=shard Count=8 File=/dev/zero"], [0, 8]),
        (["Name=gpu Type=a", "Name=gpu Type=b", "Name=shard Type=b Count=2"], [0, 2]),
    ],
)
def test_shards_of_a_line_are_divided_among_the_devices(lines: list[str], shards: list[int]) -> None:
    assert [device.shards for device in declared(lines)[0]] == shards
