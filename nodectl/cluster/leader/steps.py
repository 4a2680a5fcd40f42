"""The running steps of a cluster, in the leader: values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.cluster.leader.holding import Held, ranks_of
from nodectl.cluster.leader.sums import Sums
from nodectl.model.cpu_list import format_cpulist
from nodectl.model.states import RUNNING, SUSPENDED
from nodectl.model.wire.dispatch import Refused

ASKED, BEGUN, OVER = "asked", "begun", "over"
_MOST_TASKS = 2048
Caller = tuple[int, int]
"""The rank of the node on which a client calls, and the number of the call there."""


class Part:
    """A step's part on a node.

    `asked`: the leader's message count at the request, which tells an answer from one to an earlier request.
    """

    __slots__ = ("asked", "nodeid", "state", "tasks")

    def __init__(self, nodeid: int, tasks: str, asked: int, state: str = ASKED) -> None:
        self.nodeid = nodeid
        self.tasks = tasks
        self.asked = asked
        self.state = state


class Step:
    """A running step of the cluster.

    `parts` by rank; `left` of them have not ended, `unbegun` have not answered. `cause`: state and reason for its
    record, regardless of its parts. `give_up`: the time at which parts that do not end are given up. `suspended`:
    whether the step is suspended. `is_heard`: whether its client's node hears this leader, as far as is known.
    """

    __slots__ = (
        "call", "cancel_told", "cause", "client", "dropped", "ending", "events", "facts", "give_up", "held", "is_heard",
        "job", "kill_on_bad", "left", "no_kill", "number", "parts", "pids", "replied", "started",
        "statuses", "sums", "suspended", "unbegun", "unstarted", "viewers", "waiters",
    )  # fmt: skip

    def __init__(
        self, job: int, number: int, facts: Mapping[str, Any], parts: dict[int, Part], held: Held, *,
        call: Caller | None = None, client: int | None = None, kill_on_bad: bool = False, no_kill: bool = False,
    ) -> None:  # fmt: skip
        self.job = job
        self.number = number
        self.facts = facts
        self.parts = parts
        self.held = held
        self.call = call
        self.client = client
        self.kill_on_bad = kill_on_bad
        self.no_kill = no_kill
        self.left = self.unbegun = self.unstarted = len(parts)
        self.replied = False
        self.is_heard = True
        self.cause: tuple[str, str] | None = None
        self.ending = self.dropped = self.suspended = False
        self.give_up = 0.0
        self.cancel_told = False
        self.started = 0.0
        self.sums = Sums()
        self.events: list[Mapping[str, Any]] = []  # for its client, not sent yet
        self.pids: dict[int, int] = {}  # by task
        self.statuses: dict[int, int] = {}  # by task, of ended tasks
        self.viewers: list[Caller] = []  # calls of View that wait until all parts have begun
        self.waiters: list[Caller] = []

    @property
    def name(self) -> str:
        """The step's name for users, as `JOB.STEP`."""
        return f"{self.job}.{self.number}"

    @property
    def open_ranks(self) -> list[int]:
        """The ranks of the parts still running."""
        return [rank for rank, part in self.parts.items() if part.state != OVER]

    def view(self) -> dict[str, object]:
        """Return the answer to View: the number of tasks, and the ranks of the nodes."""
        return {"ntasks": self.facts["ntasks"], "ranks": format_cpulist(self.open_ranks)}

    def hear(self, rank: int) -> None:
        """Record the node of the step's client, which hears this leader."""
        self.client = rank
        self.is_heard = True

    def as_json(self) -> dict[str, Any]:
        """Return the data of the step for a later leader."""
        return {
            "number": self.number,
            "facts": self.facts,
            "ranks": [[rank, part.tasks] for rank, part in self.parts.items()],
            "held": self.held.as_json(),
            "call": self.call,
            "client": self.client,
            "kill_on_bad": self.kill_on_bad,
            "no_kill": self.no_kill,
            "suspended": self.suspended,
        }

    @classmethod
    def from_json(cls, job: int, told: Mapping[str, Any]) -> Step:
        """Read the result of `as_json`; whether the parts run is not known. Raises KeyError, ValueError, TypeError."""
        parts = {int(rank): Part(nodeid, tasks, 0) for nodeid, (rank, tasks) in enumerate(told["ranks"])}
        call = told["call"]
        step = cls(
            job, int(told["number"]), told["facts"], parts, Held.from_json(told["held"]),
            call=None if call is None else (int(call[0]), int(call[1])), client=told["client"],
            kill_on_bad=bool(told["kill_on_bad"]), no_kill=bool(told["no_kill"]),
        )  # fmt: skip
        step.suspended = bool(told.get("suspended"))
        step.is_heard = False
        return step

    def summary(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the step's record for lists of running steps."""
        return {
            **self.facts,
            "state": SUSPENDED if self.suspended else RUNNING,
            "reason": "",
            "started": self.started or None,
            "nodes": [
                {"node": names[rank], "nodeid": part.nodeid, "tasks": part.tasks, "state": part.state}
                for rank, part in self.parts.items()
            ],
        }

    def tasks(self) -> list[dict[str, Any]]:
        """Return the started tasks, at most `_MOST_TASKS`."""
        return [
            {"task": task, "pid": self.pids[task], "status": self.statuses.get(task), "cpus": ""}
            for task in sorted(self.pids)[:_MOST_TASKS]
        ]


def has_ended(record: Mapping[str, Any]) -> Refused:
    """Return the refusal of a call on an ended step."""
    return Refused("WrongState", f"step {record['job']}.{record['step']} has ended: {record['state']}")


def tasks_of(part: Part) -> list[int]:
    """Return the numbers of the part's tasks in the step."""
    return ranks_of(part.tasks)
