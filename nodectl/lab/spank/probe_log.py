"""Reader of the probes' log of a run: hooks with calls, in order, of each context."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodectl import spank
from nodectl.model.launch_order import SLURMD_SPANK_INIT, SPANK_SLURMD_INIT
from nodectl.spank.contexts import Context

Row = Mapping[str, Any]
_MESSAGES = {
    "slurm_error": "error", "slurm_info": "info", "slurm_verbose": "verbose", "slurm_debug": "debug",
    "slurm_debug2": "debug2", "slurm_debug3": "debug3", "slurm_spank_log": "plain",
}  # fmt: skip
_ITEMS = {value: name for name, value in vars(spank).items() if name.startswith("S_") and not name.startswith("S_CTX_")}

_CONTEXTS = {value: name for name, value in vars(spank).items() if name.startswith("S_CTX_")}


@dataclass(slots=True)
class Call:
    """A call of the SPANK interface by a plugin. `error`: 0, an ESPANK_* number, or -1 if the call raised."""

    call: str
    arguments: Sequence[Any]
    result: Any
    error: int

    @property
    def level(self) -> str:
        """The level of a message, "" for any call but a message."""
        return _MESSAGES.get(self.call, "")

    def __str__(self) -> str:
        return spelt(self, str)


def spelt(call: Call, value: Callable[[Any], str]) -> str:
    """Return the call as a line of C; `value` spells arguments and results."""
    given = list(call.arguments)
    if call.call == "spank_get_item" and given:
        given[0] = _ITEMS.get(given[0], given[0])
    words = ", ".join(value(one) for one in given)
    if call.error > 0:
        return f"{call.call}({words}) failed: {call.error}, {spank.spank_strerror(call.error)}"
    if call.call == "spank_context":
        return f"{call.call}() = {_CONTEXTS.get(call.result, call.result)}"
    if call.error < 0:
        return f"{call.call}({words}) raised {value(call.result)}"
    return f"{call.call}({words}) = {0 if call.result is None else value(call.result)}"


@dataclass(slots=True)
class Event:
    """A hook, option callback or load.

    `rc` is None when the hook did not return; `returned` is the hook's own result where --fail put another value in its
    place. `children` are the pids of processes that the hook left behind. `stdout` is the piece of standard output that
    the hook wrote: the file's inode, begin and end.
    """

    context: int
    hook: str
    pid: int
    task: int | None
    who: tuple[int, int, int, int]  # real and effective uid, real and effective gid
    began: int
    arguments: Sequence[Any]
    rc: int | None = None
    why: str = ""
    us: int = 0
    replaced: bool = False
    returned: Any = None
    calls: list[Call] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    children: Sequence[int] = ()
    stdout: Sequence[int] = ()

    @property
    def failed(self) -> bool:
        """True unless the hook returned 0."""
        return self.rc != 0


def events(rows: Iterable[Row]) -> list[Event]:
    """Return the hooks in order of beginning. Skip malformed rows, because a plugin can write to the log too."""
    found: dict[str, Event] = {}
    for row in rows:
        try:
            _take(found, row)
        except (KeyError, TypeError, AttributeError):
            continue
    return sorted(found.values(), key=lambda event: event.began)


def _take(found: dict[str, Event], row: Row) -> None:
    what, key = row["what"], row["id"]
    if what == "enter":
        who = (row["ruid"], row["euid"], row["rgid"], row["egid"])
        arguments = row["arguments"]
        found[key] = Event(row["context"], row["hook"], row["pid"], row["task"], who, row["t"], arguments)
    elif what == "call" and key in found:
        found[key].calls.append(Call(row["call"], row["arguments"], row["result"], row["error"]))
    elif what == "leave" and key in found:
        event = found[key]
        event.rc, event.why, event.us = row["rc"], row["why"], (row["t"] - event.began) // 1000
        event.changes = {kind: names for kind, names in row.get("changes", {}).items() if names}
        event.children, event.stdout = row.get("children", ()), row.get("stdout", ())
        event.replaced, event.returned = "returned" in row, row.get("returned")


def open_since(rows: Iterable[Row], pid: int) -> float:
    """Return when a process's running hook began, in seconds of the monotonic clock; 0 outside a hook."""
    began = {}
    for row in rows:
        if row.get("pid") == pid and row.get("what") == "enter":
            began[row["id"]] = row["t"] / 1e9
        elif row.get("what") == "leave":
            began.pop(row.get("id"), None)
    return min(began.values(), default=0.0)


def of_context(found: Iterable[Event], context: Context, calls: Sequence[str]) -> list[Event]:
    """Return the events of a context; for job_script, the events of the process making `calls` (prolog or epilog)."""
    mine = [event for event in found if event.context == context.number]
    if len(calls) == len(context.calls):
        return mine
    pids = {event.pid for event in mine if event.hook in calls}
    return [event for event in mine if event.pid in pids]


def not_called(found: Iterable[Event], hooks: Iterable[str], calls: Sequence[str]) -> list[str]:
    """Return the plugin's hooks missing among the events of this context, though `calls` has the hooks."""
    seen = {event.hook for event in found}
    expected = [hook for hook in calls if hook in hooks]
    if SLURMD_SPANK_INIT.call in expected and SPANK_SLURMD_INIT.call in expected:
        expected.remove(SPANK_SLURMD_INIT.call)  # called where there is no init
    return [hook for hook in expected if hook not in seen]
