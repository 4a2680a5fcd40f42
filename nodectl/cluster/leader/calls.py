"""The methods of org.nodectl answered by the leader, for commands of the cluster's user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nodectl.cluster.leader import asked, shown
from nodectl.cluster.leader.books import Books
from nodectl.cluster.leader.line import Waiting
from nodectl.cluster.leader.standstill import Standstill
from nodectl.cluster.leader.steps import Caller, Step, has_ended
from nodectl.cluster.leader.usages import Usages
from nodectl.kernel.signals import KILL, TERM
from nodectl.model.accounting import usage
from nodectl.model.states import PENDING, RUNNING, SHORT, SUSPENDED
from nodectl.model.wire.dispatch import Refused, invalid
from nodectl.model.wire.shape import BadShape, Optional, an_object, array, boolean, check, integer, text

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

Reply = Mapping[str, object]
_NUMBER = integer(0, 2**32 - 1)
_WHICH: Shape = {"job": _NUMBER, "step": _NUMBER}
_CHOICE: Shape = dict.fromkeys(("jobs", "users", "states", "names"), Optional(array(text(1024), most=10_000)))
_MOST_LISTED = 1000
# Calls carried out once, even if repeated after a broken link.
_ONCE = ("Signal", "Reserve", "Cancel", "Suspend", "Resume", "SuspendJob", "ResumeJob")
_WHY_NOT = "its job is Slurm's, and its steps start, wait, are signalled and end"


def _is_of(state: str, states: Iterable[str] | None) -> bool:
    """Return True if the state is one of those chosen, by name or short form, or if none was chosen."""
    return not states or not {state, SHORT[state]}.isdisjoint(one.upper() for one in states)


class Calls:
    """The methods of a leader.

    `launch` starts steps. `_asks`: the requests to nodes on behalf of callers, by number.
    """

    def __init__(self, books: Books, launch: Callable[..., None]) -> None:
        self._books = books
        self._launch = launch
        self._asks: dict[int, tuple[int, Caller, str, dict[str, Any]]] = {}
        self._count = 0
        self._standstill = Standstill(books, self._ask)
        self.usages = Usages(books, self._ask, self._leave)
        self._methods: dict[str, tuple[Shape, Callable[[Caller, Any], Reply | None]]] = {
            "List": ({"ended": Optional(integer(0, 10_000)), "skip": Optional(integer(0, 2**31))}, self._list),
            "Usage": ({}, self._usage),
            "Show": (_WHICH, self._show),
            "Wait": ({**_WHICH, "epilog": Optional(boolean)}, self._wait),
            "Signal": ({**_WHICH, "signal": integer(1, 64)}, self._signal),
            "View": (_WHICH, self._view),
            "Suspend": (_WHICH, self._suspend),
            "Resume": (_WHICH, self._resume),
            "SuspendJob": ({"job": text(64)}, self._suspend_job),
            "ResumeJob": ({"job": text(64)}, self._resume_job),
            "Explain": (_WHICH, self._explain),
            "ExplainJob": ({"job": text(64)}, self._explain_job),
            "Trace": ({**_WHICH, "begin": Optional(integer(0, 2**31))}, self._trace),
            "Reserve": ({"jobid": Optional(_NUMBER), "request": Optional(an_object)}, self._reserve),
            "Nodes": ({}, self._nodes),
            "WeekHours": ({}, self._week_hours),
            "Queue": (
                {**_CHOICE, "skip": Optional(integer(0, 2**31)), "points": Optional(boolean)},
                self._queue,
            ),
            "Cancel": (
                {**_CHOICE, "signal": Optional(integer(1, 64)), "batch": Optional(boolean)},
                self._cancel,
            ),
            "Accounting": (
                {
                    "of": text(16), "uid": Optional(_NUMBER), "jobs": Optional(array(_NUMBER, most=10_000)),
                    "since": Optional(integer(0, 1 << 40)), "until": Optional(integer(0, 1 << 40)),
                    "next": Optional(text(64)),
                },
                self._accounting,
            ),
            "Hello": ({}, self._of_own_node("Hello")),
            "Config": ({}, self._of_own_node("Config")),
        }  # fmt: skip

    def answer(self, call: Caller, header: Mapping[str, Any], now: float) -> Reply | None:
        """Return the reply to a call; None where the reply is sent later. Raises Refused."""
        method = str(header["method"]).rpartition(".")[2]
        parameters = header.get("parameters") or {}
        if method == "Launch":
            found = _shaped(parameters, {"request": an_object})
            self._launch(call, found["request"], now, streams=bool(header.get("streams")))
            return None
        if method not in self._methods:
            raise Refused("InvalidRequest", f"a cluster does not answer {method[:64]}: {_WHY_NOT}", parameter="method")
        if method in _ONCE and self._books.comes_again(call):
            return None
        if any(asked_for == call for _, asked_for, *_ in self._asks.values()):
            return None  # a repeated call, before the nodes' answers
        shape, function = self._methods[method]
        return function(call, _shaped(parameters, shape))

    # Steps.

    def _list(self, call: Caller, parameters: Mapping[str, Any]) -> Reply:
        books, skip, most = self._books, int(parameters.get("skip", 0)), int(parameters.get("ended", 0))
        steps: list[Mapping[str, Any]] = []
        if not skip:
            steps += [step.summary(books.names) for step in books.life.steps.values()]
        latest = books.history.latest(min(most, _MOST_LISTED), skip)
        more = len(latest) == _MOST_LISTED < most and len(books.history) > skip + len(latest)
        return {"steps": [*steps, *map(shown.brief, latest)], "more": more}

    def _usage(self, call: Caller, parameters: Mapping[str, Any]) -> None:
        self.usages.tell(call)

    def _show(self, call: Caller, parameters: Mapping[str, Any]) -> Reply:
        step = self._running(parameters)
        if step is None:
            return {"record": self._ended(parameters)}
        return {"record": {**step.summary(self._books.names), "tasks": step.tasks()}}

    def _wait(self, call: Caller, parameters: Mapping[str, Any]) -> Reply | None:
        step = self._running(parameters)
        if step is None:
            return {"record": self._ended(parameters)}
        if call not in step.waiters:
            step.waiters.append(call)
        return None

    def _running(self, parameters: Mapping[str, Any]) -> Step | None:
        return self._books.life.steps.get(parameters["step"]) if parameters["job"] == self._books.job else None

    def _ended(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        books = self._books
        record = books.history.get(parameters["step"]) if parameters["job"] == books.job else None
        if record is None:
            raise Refused("NoSuchStep", f"no step {parameters['job']}.{parameters['step']} is known", subject="unknown")
        return record

    def _must_run(self, parameters: Mapping[str, Any]) -> Step:
        step = self._running(parameters)
        if step is None:
            raise has_ended(self._ended(parameters))
        return step

    def _signal(self, call: Caller, parameters: Mapping[str, Any]) -> Reply:
        number = parameters["signal"]
        if number in (TERM, KILL) and (one := self._in_line(parameters)) is not None:
            self._withdraw(one)
            return {"cancelled": True}
        step = self._must_run(parameters)
        if step.suspended and number != KILL:
            raise Refused("WrongState", f"step {step.name} is suspended; resume it, or end it with KILL")
        self._books.life.signal(step, number, self._books.now, call)
        return {}

    def _view(self, call: Caller, parameters: Mapping[str, Any]) -> Reply | None:
        """Return the ranks of the nodes for the caller's agent to ask, after the begin of all parts."""
        step = self._must_run(parameters)
        if not step.unbegun:
            return step.view()
        if call not in step.viewers:
            step.viewers.append(call)
        return None

    def _suspend(self, call: Caller, parameters: Mapping[str, Any]) -> None:
        self._standstill.suspend(call, [self._must_run(parameters)])

    def _resume(self, call: Caller, parameters: Mapping[str, Any]) -> None:
        self._standstill.resume(call, [self._must_run(parameters)])

    def _suspend_job(self, call: Caller, parameters: Mapping[str, Any]) -> None:
        self._standstill.suspend(call, self._of_job(parameters["job"], "no step that runs", suspended=False))

    def _resume_job(self, call: Caller, parameters: Mapping[str, Any]) -> None:
        self._standstill.resume(call, self._of_job(parameters["job"], "no step that is suspended", suspended=True))

    def _of_job(self, name: str, none: str, *, suspended: bool) -> list[Step]:
        self._must_be_ours(name)
        steps = [step for step in self._books.life.steps.values() if step.suspended is suspended]
        if not steps:
            raise Refused("WrongState", f"job {name} has {none}")
        return steps

    def _must_be_ours(self, job: str) -> None:
        if job != str(self._books.job):
            raise Refused("NoSuchJob", f"no job {job} is known: this is job {self._books.job}", subject="unknown")

    def _explain(self, call: Caller, parameters: Mapping[str, Any]) -> Reply | None:
        if (one := self._in_line(parameters)) is not None:
            return {"explanation": shown.explanation(self._books, one)}
        step = self._must_run(parameters)
        self._ask(next(iter(step.open_ranks), 0), call, "Explain", parameters)
        return None

    def _explain_job(self, call: Caller, parameters: Mapping[str, Any]) -> Reply:
        """Explain the first waiting launch."""
        self._must_be_ours(parameters["job"])
        for one in self._books.line:
            return {"explanation": shown.explanation(self._books, one)}
        raise Refused("NoSuchJob", f"nothing of job {self._books.job} waits")

    def _in_line(self, parameters: Mapping[str, Any]) -> Waiting | None:
        """Return the waiting launch with this step number; None for none."""
        if parameters["job"] != self._books.job:
            return None
        return next((one for one in self._books.line if one.number == parameters["step"]), None)

    def _withdraw(self, one: Waiting) -> None:
        """Remove a waiting launch and refuse the call."""
        self._books.line.remove(one.call)
        self._books.refuse(one.call, Refused("LaunchRefused", "it was cancelled while it waited", exit_status=1))

    def _trace(self, call: Caller, parameters: Mapping[str, Any]) -> None:
        """Ask the step's first node for the trace: the clocks of several nodes differ."""
        step = self._running(parameters)
        if step is not None:
            rank = next(iter(step.parts))
        else:
            nodes = self._ended(parameters).get("nodes") or [{}]
            names = self._books.names
            rank = names.index(nodes[0]["node"]) if nodes[0].get("node") in names else 0
        self._ask(rank, call, "Trace", parameters)

    def _of_own_node(self, method: str) -> Callable[[Caller, Any], None]:
        """Return a method for asking the caller's own node."""

        def ask(call: Caller, parameters: Any) -> None:
            self._ask(call[0], call, method, parameters)

        return ask

    def _reserve(self, call: Caller, parameters: Mapping[str, Any]) -> Reply:
        books = self._books
        books.numbers.check((int(parameters.get("jobid", -1)), -1), books.job)
        if "request" in parameters:
            wanted = asked.read({"environment": {}, **parameters["request"]})
            if not books.expected and (never := books.table.never_fits(wanted.wish)):
                raise invalid("layout", never)
        return {"job": books.job, "step": books.numbers.reserve()}

    # The allocation.

    def _week_hours(self, call: Caller, parameters: Mapping[str, Any]) -> Reply:
        """Return no limits of a week: those are a service's, and the jobs of a cluster are Slurm's."""
        return {"hours": []}

    def _nodes(self, call: Caller, parameters: Mapping[str, Any]) -> Reply:
        return {"nodes": list(shown.nodes(self._books))}

    def _queue(self, call: Caller, parameters: Mapping[str, Any]) -> Reply:
        states = parameters.get("states")
        rows = self._waiting(parameters) if _is_of(PENDING, states) else []
        skip = int(parameters.get("skip", 0))
        rows = rows[skip : skip + _MOST_LISTED + 1]
        return {"jobs": rows[:_MOST_LISTED], "more": len(rows) > _MOST_LISTED}

    def _waiting(self, parameters: Mapping[str, Any]) -> list[dict[str, object]]:
        names, jobs = parameters.get("names"), parameters.get("jobs")
        if jobs and str(self._books.job) not in jobs:
            return []
        rows = (shown.waiting(self._books, one) for one in self._books.line)
        return [row for row in rows if not names or row["name"] in names]

    def _cancel(self, call: Caller, parameters: Mapping[str, Any]) -> Reply:
        """Cancel running steps and waiting launches: all of the job, or only the given names and states."""
        books = self._books
        jobs = parameters.get("jobs")
        if jobs and str(books.job) not in jobs:
            self._must_be_ours(jobs[0])
        number = parameters.get("signal")
        cancelled = []
        for step in self._chosen(parameters):
            if number is None:
                books.life.cancel(step, books.now)
            else:
                books.life.signal(step, number, books.now, call)
            cancelled.append(step.name)
        states = parameters.get("states")
        if number is None and _is_of(PENDING, states):
            names = parameters.get("names")
            for one in list(books.line):
                if not names or shown.name_of(one.asked.request) in names:
                    self._withdraw(one)
                    cancelled.append(f"{books.job}.{one.number}")
        return {"cancelled": cancelled}

    def _chosen(self, parameters: Mapping[str, Any]) -> Iterator[Step]:
        names, states = parameters.get("names"), parameters.get("states")
        for step in list(self._books.life.steps.values()):
            is_chosen = _is_of(SUSPENDED if step.suspended else RUNNING, states)
            if is_chosen and (not names or step.facts["name"] in names):
                yield step

    def _accounting(self, call: Caller, parameters: Mapping[str, Any]) -> Reply:
        books = self._books
        jobs = parameters.get("jobs")
        if parameters["of"] != "steps" or (jobs and books.job not in jobs):
            return {"records": [], "next": ""}
        skip = int(parameters["next"]) if str(parameters.get("next", "")).isdecimal() else 0
        found = books.history.latest(_MOST_LISTED // 2, skip)
        records = [usage.of_step(record) for record in found]
        if not skip:
            running = (step.summary(books.names) for step in books.life.steps.values())
            records = [*(usage.of_step(one) for one in running), *records]
        more = len(books.history) > skip + len(found)
        return {"records": records, "next": str(skip + len(found)) if more else ""}

    # Asked of nodes.

    def _ask(self, rank: int, call: Caller, method: str, parameters: Mapping[str, Any]) -> int:
        """Send a request to a node and return the request's number. Raises Refused."""
        if self._books.table.why_down(rank):
            raise Refused("NoSuchStep", f"node {self._books.names[rank]} is gone: {self._books.table.why_down(rank)}")
        self._count += 1
        number = self._books.life.begin + self._count  # so answers to an earlier leader do not count
        self._asks[number] = rank, call, method, dict(parameters)
        self._books.out.send(rank, "ask", id=number, method=method, parameters=dict(parameters))
        return number

    def _leave(self, number: int) -> None:
        """Detach a request from the caller, so a repeated call does not count as asked already."""
        rank, _, method, parameters = self._asks[number]
        self._asks[number] = rank, (rank, 0), method, parameters

    def ask_again(self, rank: int) -> None:
        """Repeat the requests to a node: requests or answers may be lost with a link. A second answer is ignored."""
        for number, (asked_rank, _, method, parameters) in self._asks.items():
            if asked_rank == rank:
                self._books.out.send(rank, "ask", id=number, method=method, parameters=parameters)

    def answered(self, rank: int, header: Mapping[str, Any]) -> None:
        """Pass a node's answer on to the caller."""
        known = self._asks.get(int(header["id"]))
        if known is None or known[0] != rank:
            return
        del self._asks[int(header["id"])]
        if self._of_many(int(header["id"]), header):
            return
        call = known[1]
        told = {name: header[name] for name in ("error", "parameters") if name in header}
        self._books.out.send(call[0], "reply", id=call[1], **told)

    def _of_many(self, number: int, header: Mapping[str, Any]) -> bool:
        """Handle an answer to a request sent to several nodes; return False for an answer to a different request."""
        return self._standstill.answered(number, header) or self.usages.answered(number, header)

    def _is_of_many(self, number: int) -> bool:
        return self._standstill.awaits(number) or self.usages.awaits(number)

    def node_lost(self, rank: int, reason: str) -> None:
        """Drop the requests to and from a lost node, and refuse the calls waiting for an answer from there."""
        for number, (asked_rank, call, *_) in list(self._asks.items()):
            if rank == asked_rank and self._of_many(number, {"error": "NoSuchStep"}):
                del self._asks[number]
            elif rank in (asked_rank, call[0]) and not self._is_of_many(number):
                del self._asks[number]
                if rank != call[0]:
                    self._books.refuse(
                        call, Refused("NoSuchStep", f"node {self._books.names[rank]} was lost: {reason}")
                    )

    def hung_up(self, call: Caller) -> None:
        """Forget a disconnected caller."""
        for number, (_, caller, *_) in list(self._asks.items()):
            if caller == call and not self._is_of_many(number):
                del self._asks[number]
        for step in self._books.life.steps.values():
            for callers in (step.waiters, step.viewers):
                if call in callers:
                    callers.remove(call)


def _shaped(parameters: object, shape: Shape) -> Mapping[str, Any]:
    try:
        return check(parameters, shape)
    except BadShape as error:
        raise Refused("org.varlink.service.InvalidParameter", str(error), parameter=error.parameter) from None
