"""The choice of a node's devices for a job, and the cores near the devices."""

from __future__ import annotations

from nodectl.placement.binding import devices
from nodectl.selection.tres.shape import Shape

Wants = tuple[tuple[str, str, int], ...]
"""Name, type ("" for any) and number of devices; those with a type first, for they have less to choose from."""


def cores_near(shape: Shape, wants: Wants, taken: int, free: int) -> int | None:
    """Return the cores near the free devices with the most free cores around; None where there are too few devices."""
    picked = near = 0
    for name, kind, count in wants:
        left = shape.fitting(name, kind) & ~taken & ~picked
        if left.bit_count() < count:
            return None
        numbers = [number for number in range(left.bit_length()) if left >> number & 1]
        numbers.sort(key=lambda number: -(shape.near(number) & free).bit_count())
        for number in numbers[:count]:
            picked |= 1 << number
            near |= shape.near(number)
    return near


def held(shape: Shape, wants: Wants, taken: int, cores: int) -> tuple[str, ...]:
    """Return the keys of the devices for a job on these cores, near devices first. Raises Refused for too few."""
    cpus = shape.cpu_mask(cores)
    busy = set(shape.devices_of(taken))
    keys: list[str] = []
    for name, kind, count in wants:
        asked = devices.Wanted(count, type=kind, name=name)
        found = devices.hold(shape.devices, asked, busy, cpus, shape.machine)
        busy.update(found)
        keys += [device.key for device in found]
    return tuple(keys)
