"""Observation of a select plugin's calls: the time of each, and on request arguments and result in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from bitarray import bitarray

from nodectl.model.cpu_list import format_cpulist
from nodectl.plugin_host.loader import LIFE, Plugin
from nodectl.selection.calls import PREFIX
from nodectl.selection.modes import SELECT_MODE_RUN_NOW, SELECT_MODE_TEST_ONLY, SELECT_MODE_WILL_RUN
from nodectl.selection.records import JobRecord, NodeRecord, NodeTable, Output, StepRecord
from nodectl.selection.resources import names

_MODES = {
    SELECT_MODE_RUN_NOW: "RUN_NOW", SELECT_MODE_TEST_ONLY: "TEST_ONLY", SELECT_MODE_WILL_RUN: "WILL_RUN",
}  # fmt: skip
_MODE_AT = 5  # of job_test's parameters
_LONGEST = 120
_MOST_JOBS = 8
Told = Callable[[dict[str, Any]], object]
"""Is told a call: time in the workload, function, arguments and result as words, what it changed, microseconds."""


class Watch:
    """The observer of a plugin over a table of nodes. `spent`: by function the number of calls, and seconds in all."""

    def __init__(self, plugin: Plugin, nodes: NodeTable, told: Told | None = None) -> None:
        self.spent: dict[str, tuple[int, float]] = {}
        self.time: Callable[[], float] = lambda: 0.0  # of the workload
        self._nodes = nodes
        self._told = told
        for name, function in plugin.hooks.items():
            if name not in LIFE:
                plugin.hooks[name] = self._watched(name, function)  # type: ignore[assignment]  # called in its place

    def _watched(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        spent = self.spent
        clock = time.perf_counter

        def call(*arguments: object) -> object:
            before = [self.shown(name, place, one) for place, one in enumerate(arguments)] if self._told else []
            began = clock()
            failed: BaseException | None = None
            value: object = None
            try:
                value = function(*arguments)
            except BaseException as error:
                failed = error
                raise
            finally:
                took = clock() - began
                count, seconds = spent.get(name, (0, 0.0))
                spent[name] = (count + 1, seconds + took)
                if self._told:
                    self._tell(self._told, name, arguments, before, failed or value, took)
            return value

        return call

    def _tell(
        self, told: Told, name: str, arguments: Sequence[object], before: list[str], result: object, took: float
    ) -> None:  # fmt: skip
        after = [self.shown(name, place, one) for place, one in enumerate(arguments)]
        changed = [new for old, new in zip(before, after, strict=True) if old != new]
        if name == f"{PREFIX}job_test" and isinstance(job := arguments[0], JobRecord) and job.job_resrcs is not None:
            changed.append(f"gives {self._given(job)}")
        told(
            {
                "time": round(self.time(), 6),
                "function": name,
                "arguments": before,
                "result": f"raised {type(result).__name__}: {result}"[:_LONGEST]
                if isinstance(result, BaseException)
                else self.shown(name, -1, result),
                "changed": changed,
                "us": round(took * 1e6, 1),
            }
        )

    def _given(self, job: JobRecord) -> str:
        """Return the plugin's job_resrcs in words, even if malformed."""
        try:
            held: Any = job.job_resrcs
            devices = [key for keys in held.gres.values() for key in keys]
            memory = sum(held.memory.values())
            words = [f"{held.ncpus} CPUs", f"cores {_ranges(held.core_bitmap)}"]
            return ", ".join([*words, *([f"{memory} MiB"] if memory else []), *devices])
        except Exception as error:  # the host's checks report the fault
            return f"no JobResources ({type(error).__name__})"

    def shown(self, name: str, place: int, value: object) -> str:
        """Return a value in a few words."""
        if isinstance(value, JobRecord):
            return f"job {value.job_id}"
        if isinstance(value, NodeRecord):
            return f"node {value.name}"
        if isinstance(value, NodeTable):
            return f"{len(value)} nodes"
        if isinstance(value, StepRecord):
            return f"step {value.job_ptr.job_id}.{value.step_id}"
        if isinstance(value, Output):
            return f"Output({self.shown(name, place, value.value)})"
        if isinstance(value, bitarray):
            return self._bits(name, place, value)
        if isinstance(value, list | tuple) and value and all(isinstance(one, JobRecord) for one in value):
            ids = ",".join(str(one.job_id) for one in value[:_MOST_JOBS])
            return f"jobs {ids}" + (f" and {len(value) - _MOST_JOBS} more" if len(value) > _MOST_JOBS else "")
        if name == f"{PREFIX}job_test" and place == _MODE_AT and isinstance(value, int):
            return _MODES.get(value, str(value))
        try:
            text = " ".join(repr(value).split())
        except Exception:  # a plugin's object may raise here
            text = f"a {type(value).__name__}"
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."

    def _bits(self, name: str, place: int, bits: bitarray) -> str:
        """Return a bitmap as nodes or cores.

        Cores are job_test's last parameter and any bitmap longer than the table.
        """
        if len(bits) == len(self._nodes) and not (name == f"{PREFIX}job_test" and place > _MODE_AT):
            return f"nodes {names(bits, self._nodes) or 'none'}"
        return f"cores {_ranges(bits)}"


def line_of(call: dict[str, Any]) -> str:
    """Return a call as a line."""
    changed = f", {'; '.join(call['changed'])}" if call["changed"] else ""
    function = call["function"].removeprefix(PREFIX)
    return (
        f"{call['time']:.3f} {function}({', '.join(call['arguments'])}) = {call['result']}{changed} [{call['us']:g} us]"
    )


def _ranges(bits: bitarray) -> str:
    return format_cpulist(bits.search(bitarray("1"))) or "none"
