"""Update: new limits for a running step and the job. The owner may lower limits; admins may also raise them.

Admins are root and the members of admin_group. Like Slurm's operators they may raise the limits of any job, beyond what
its user could have asked for.

The daemon writes the job's cgroup and the step's, in an order in which the job never has less than its step. When
memory is lowered, the kernel first reclaims it; memory that stays in use is not taken away. If a write fails, all
writes are undone. The step's file then tells the next daemon the new limits, and the stepd writes them into its record.
"""

import asyncio
import contextlib
import copy
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nodectl.launch.cgroup import shares, tree
from nodectl.launch.cgroup.constraints import Constraints
from nodectl.model.request_fields import Limits
from nodectl.model.step import Step
from nodectl.model.wire.dispatch import Call, Refused, invalid
from nodectl.model.wire.table import shape_of
from nodectl.service.daemon.admission import launch_request
from nodectl.service.daemon.admission.turns import Turns
from nodectl.service.daemon.jobs.registry import WHICH, Registry
from nodectl.service.daemon.steps.live import LiveStep

UPDATE = {**WHICH, **shape_of(Limits)}
_HIGH, _MAX, _SWAP = "memory.high", "memory.max", "memory.swap.max"
_UNASKED = "max"  # of memory and swap space: files as the kernel makes them
_USER = "/user"
_MIB = 1 << 20
_PATIENCE = 1.0  # seconds for a stepd, which does not answer during a plugin's hook


class _InUse(Exception):
    """The memory to be taken away is in use; str() is a single line."""


class _Write(NamedTuple):
    """A write of a cgroup file, with new and old value."""

    group: tree.Group
    name: str
    new: str
    old: str

    @property
    def is_user(self) -> bool:
        """True for the cgroup of the step's tasks."""
        return self.group.full_path.endswith(_USER)


class UpdateStep:
    """The Update method of the node. `mount` is the cgroup2 mount."""

    def __init__(self, mount: str, registry: Registry, constraints: Constraints) -> None:
        self._mount = mount
        self._registry = registry
        self._constraints = constraints
        self._turns = Turns()

    async def update(self, call: Call) -> Mapping[str, object]:
        """Change the limits of a step and of the job."""
        live = self._registry.find_running(call)
        if live.in_prolog:
            raise Refused("WrongState", f"step {live.step} has no task yet: its prolog is running")
        async with self._turns.of(call.peer.uid), live.updating:
            await self._change(live, call.parameters, may_raise=self._registry.permissions.is_admin(call.peer))
        return {}

    async def _change(self, live: LiveStep, request: Mapping[str, object], *, may_raise: bool) -> None:
        old, new = live.step, self._changed(live.step, request)
        if not may_raise:
            _must_lower(old, new)
        writes = self._writes(old, new, self._touched(old, new, request))
        changed = {one.name: one.new for one in writes if one.is_user}
        new.limits = {**old.limits, **changed}
        if not tree.Group(f"{self._mount}{old.cgroup}{_USER}").exists():
            writes = [one for one in writes if not one.is_user]  # the stepd makes the cgroup with the new limits
        lowers = _memory(new) < _memory(old)
        try:
            await asyncio.to_thread(_write_all, writes, lowers=lowers)  # reclaiming memory may take long
            if live.ended.done():
                raise _just_ended(old)
            live.files.rewrite_spec(new)
        except (OSError, _InUse) as error:
            await asyncio.to_thread(_undo, writes)
            if isinstance(error, FileNotFoundError) and not all(one.group.exists() for one in writes):
                raise _just_ended(old) from None
            why = f"write {error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            raise Refused("WrongState", f"step {old}: {why}; its limits are as they were") from None
        old.memory, old.shares, old.limits = new.memory, new.shares, new.limits
        # The stepd writes them once more: it may have begun meanwhile, with its old limits. In a hook it does not
        # answer, but it goes no further before it has read this.
        await live.ask("Confine", {"memory": new.memory, "limits": changed}, _PATIENCE)

    def _changed(self, step: Step, request: Mapping[str, object]) -> Step:
        """Return a copy of the step with the new limits. Raises Refused."""
        new = copy.copy(step)
        new.memory = int(str(request.get("mem", step.memory)))
        launch_request.check_memory(new.memory, self._constraints)
        try:
            new.shares = {**step.shares, **shares.asked(request)}
        except shares.BadShare as error:
            raise invalid(error.parameter, str(error)) from None
        return new

    def _touched(self, old: Step, new: Step, request: Mapping[str, object]) -> list[str]:
        """Return the names of the files to write, in order. Raises Refused for a file which is not enforced here."""
        lowers = _memory(new) < _memory(old)
        touched = [*((_HIGH, _MAX, _SWAP) if lowers else (_MAX, _HIGH, _SWAP))] if "mem" in request else []
        touched += dict.fromkeys(name.partition(" ")[0] for name in shares.asked(request))
        for name in touched:
            why = self._constraints.why_not(name)
            if why:
                raise invalid("mem" if "memory" in name else shares.parameter_of(name), f"not enforced: {why}")
        return touched

    def _writes(self, old: Step, new: Step, names: Iterable[str]) -> "list[_Write]":
        """Return the writes in order: the step's cgroup first where memory is taken away, else the job's first."""
        path = f"{self._mount}{old.cgroup}"
        before, after = copy.copy(old), self._constraints
        before.shares = {**dict.fromkeys(new.shares, 0), **old.shares}  # a disk without a limit says so
        groups = [
            (tree.Group(os.path.dirname(path)), after.of_job(new).files, after.of_job(before).files),
            (tree.Group(f"{path}{_USER}"), after.of_step(new).files, after.of_step(before).files),
        ]
        if _memory(new) < _memory(old):
            groups.reverse()
        if not old.is_first:
            groups = [group for group in groups if group[0].full_path.endswith(_USER)]  # the job is its first step's
        return [
            _Write(group, name, one.get(name, _UNASKED), two.get(name, _UNASKED))
            for group, one, two in groups
            for name in names
            if name in one or name in two
        ]


def _just_ended(step: Step) -> Refused:
    return Refused("NoSuchStep", f"step {step} has just ended")


def _must_lower(old: Step, new: Step) -> None:
    """Raise Refused if any new limit is higher."""
    more = shares.beyond(new.shares, old.shares)
    if more:
        raise Refused(
            "NotPermitted", f"{shares.said(more, new.shares)}: only an admin may exceed {shares.said(more, old.shares)}"
        )
    if _memory(new) > _memory(old):
        raise Refused("NotPermitted", f"mem: only an admin may exceed the {old.memory} MiB that step {old} has")


def _memory(step: Step) -> float:
    return step.memory or float("inf")


def _write_all(writes: Iterable[_Write], *, lowers: bool) -> None:
    """Write all files. Raises OSError, and _InUse for memory which cannot be lowered."""
    for one in writes:
        if lowers and one.name == _MAX and one.group.memory.current > int(one.new):
            used, most = one.group.memory.current / _MIB, int(one.new) // _MIB
            raise _InUse(f"it uses {used:.1f} MiB of memory, which cannot be lowered to {most} MiB")
        one.group.write({one.name: one.new})


def _undo(writes: Iterable[_Write]) -> None:
    """Write the old values, as far as possible: the step may have ended."""
    for one in reversed(list(writes)):
        with contextlib.suppress(OSError):
            one.group.write({one.name: one.old})
