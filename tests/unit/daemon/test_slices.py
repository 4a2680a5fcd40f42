"""What one call costs: others are served between its slices, its names have a budget, and its answer comes in pages."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import Refused
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.admission.slices import SLICE, Slices, Work
from nodectl.service.daemon.admission.turns import Turns
from nodectl.service.daemon.controller.job_names import name_of
from nodectl.service.daemon.controller.table import JobTable
from nodectl.service.daemon.methods.job_calls import JobCalls
from nodectl.service.daemon.methods.show_queue import ShowQueue
from unit.scheduler.bench import Bench

_PAGE = 1 << 20


def _always_due() -> Callable[[], float]:
    """A clock by which each look is the end of a slice."""
    return itertools.count(0.0, SLICE).__next__


async def _turns_meanwhile(work: Awaitable[object]) -> int:
    """How often another caller could have been served while this was done."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    return turns


class Site:
    """The queue of a bench, as the methods of a node have it, with the clock of `_always_due`."""

    def __init__(self, store: Any = None) -> None:
        self.bench = Bench()
        self.bench.run(8, user=2000)
        store = store or SimpleNamespace(batches=list, find=lambda _: None)
        self.table = JobTable(store, 1 << 40)
        self.slices = Slices()
        turns = Turns()
        scheduler = self.bench.scheduler
        selection = self.bench.selection
        controller = SimpleNamespace(table=self.table, scheduler=scheduler, selection=selection, now=time.time)
        self.calls: Any = SimpleNamespace(
            controller=controller,
            hides_others=False,
            permissions=SimpleNamespace(may_see=lambda *_: True),
            turn=lambda call: turns.of(call.peer.uid),
            learn=lambda call, text: JobCalls.learn(self.calls, call, text),
            several=lambda call, names, work: JobCalls.several(self.calls, call, names, work),
            work=lambda: Work(self.slices, clock=_always_due()),
        )

    def restored(self) -> None:
        """The table has all jobs of the bench."""
        for _ in self.table.restoring(self.bench.scheduler.jobs, self.bench.scheduler.waiting_tasks):
            """All of it at once."""

    async def queue(self, **given: object) -> Any:
        call: Any = SimpleNamespace(parameters=given, peer=SimpleNamespace(uid=1000))
        registry: Any = SimpleNamespace(commands_of_jobs=dict)  # no step of a bulk runs
        return await ShowQueue(self.calls, registry).queue(call)

    async def several(self, names: list[str], work: Work) -> list[tuple[JobRecord, str]]:
        call: Any = SimpleNamespace(peer=SimpleNamespace(uid=1000))
        return await JobCalls.several(self.calls, call, names, work)


class Counted(Work):
    """Counts what is spent."""

    spent = 0

    def spend(self, units: int) -> None:
        self.spent += units
        super().spend(units)


@pytest.fixture
def site() -> Site:
    return Site()


def test_many_calls_share_one_slice_in_each_turn_of_the_loop() -> None:
    """However many of them work: who asks for little is served after one slice of one of them."""
    order: list[str] = []

    def pieces(name: str) -> Generator[None, None, None]:
        for _ in range(5):
            order.append(name)
            yield

    async def all_of_them() -> None:
        slices = Slices()
        calls = [Work(slices, clock=_always_due()).through(pieces(name)) for name in "abc"]
        tasks = [asyncio.ensure_future(call) for call in calls]
        before = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if before >= 3:  # each begins at once
                assert len(order) - before <= 1
            before = len(order)

    asyncio.run(all_of_them())
    assert sorted(order) == sorted("abc" * 5)
    assert order[:9] == list("abc" * 3)


def test_a_call_that_is_cancelled_while_it_waits_for_its_slice_holds_up_no_other() -> None:
    async def two_calls() -> None:
        slices = Slices()
        one, two = asyncio.ensure_future(slices.next()), asyncio.ensure_future(slices.next())
        await asyncio.sleep(0)
        one.cancel()
        await two

    asyncio.run(two_calls())


def test_others_are_served_while_the_queue_is_told(site: Site) -> None:
    for _ in range(200):
        site.bench.submit()
    site.restored()
    turns = asyncio.run(_turns_meanwhile(site.queue()))
    assert turns > 200


def test_jobs_that_end_while_the_queue_is_told_are_left_out(site: Site) -> None:
    jobs = [site.bench.submit() for _ in range(100)]
    site.restored()

    async def told() -> Any:
        task = asyncio.ensure_future(site.queue())
        for job in jobs:
            await asyncio.sleep(0)
            with contextlib.suppress(KeyError):
                site.bench.scheduler.cancel(job, site.bench.at)
        return await task

    answer = asyncio.run(told())
    assert len(answer["jobs"]) < len(jobs)
    assert not answer["more"]


def test_the_queue_is_told_in_pages_by_bytes_and_all_of_it(site: Site) -> None:
    """Arrays with long texts, which together are more than a reply may have."""
    text = ",".join(str(index) for index in range(0, 1000, 2))
    arrays = [site.bench.submit(array_tasks=text, held="user", name=f"{number}-{'x' * 9000}") for number in range(300)]
    site.restored()

    async def pages() -> list[list[dict[str, Any]]]:
        found: list[list[dict[str, Any]]] = []
        more = True
        while more:
            answer = await site.queue(states=["PENDING"], skip=sum(map(len, found)))
            more = answer["more"]
            found.append(answer["jobs"])
        return found

    told = asyncio.run(pages())
    assert len(told) > 2
    assert all(len(framing.encode({"jobs": page})) < _PAGE + 20_000 for page in told)
    assert [row["job"] for page in told for row in page] == [job.job_id for job in arrays]


def test_a_long_array_stands_in_full_once_in_its_row_and_never_in_a_sentence(site: Site) -> None:
    text = ",".join(str(index) for index in range(0, 1000, 2))
    array = site.bench.submit(array_tasks=text, held="user")
    site.restored()
    [row] = asyncio.run(site.queue(states=["PENDING"]))["jobs"]
    assert row["array_tasks"] == text
    assert row["id"] == name_of(array)
    assert len(name_of(array)) < 1024
    assert name_of(array).startswith(f"{array.job_id}_[0,2,4,")
    assert name_of(array).endswith(",...]")


def test_names_that_mean_too_much_are_refused_before_the_work_is_done(site: Site) -> None:
    array = site.bench.submit(array_tasks="0-999", held="user")
    site.restored()
    names = [f"{array.job_id}_[0-{last}:2,1-{last}:2]" for last in range(600, 800)]
    work = Counted(site.slices, most=2000)
    with pytest.raises(Refused, match="of one call mean more than 2000 jobs, ranges and indices: name fewer of them"):
        asyncio.run(site.several(names, work))
    assert work.spent < 3000


def test_a_task_is_found_by_its_name_without_a_look_at_all_others(site: Site) -> None:
    array = site.bench.submit(array_tasks="0-999", held="user")
    apart = [site.bench.scheduler.set_apart(array, index, site.bench.at) for index in range(500)]
    site.restored()
    spent: list[int] = []
    assert site.table.named(f"{array.job_id}_77", spent.append) == [(apart[77], "")]
    some = site.table.named(f"{array.job_id}_[498-501]", spent.append)
    assert some == [(array, "498-501"), (apart[498], ""), (apart[499], "")]
    assert sum(spent) < 20
    assert len(site.table.named(str(array.job_id))) == 501


def test_others_are_served_between_two_names(site: Site) -> None:
    jobs = [site.bench.submit() for _ in range(100)]
    site.restored()
    work = Work(site.slices, clock=_always_due())
    turns = asyncio.run(_turns_meanwhile(site.several([str(job.job_id) for job in jobs], work)))
    assert turns > 100


def test_others_are_served_while_the_reasons_of_many_are_found(site: Site) -> None:
    """As when a round of the scheduler has told all clients that wait for their jobs."""
    jobs = [site.bench.submit() for _ in range(50)]
    site.restored()
    site.calls.is_admin = lambda _: False
    site.calls._slices = site.slices

    async def all_asked() -> None:
        await asyncio.gather(*(JobCalls.explained(site.calls, site.calls, job) for job in jobs))

    assert asyncio.run(_turns_meanwhile(all_asked())) > len(jobs)


def test_a_job_that_starts_while_its_reason_is_found_keeps_what_it_was_given(site: Site) -> None:
    """To find out whether a shorter job would start, the plugin is asked for a place, which is then forgotten."""
    *others, last = [site.bench.submit(8) for _ in range(40)]
    pieces = site.bench.scheduler.explaining(last, site.bench.at)
    next(pieces)
    next(pieces)
    for job in others:
        site.bench.scheduler.cancel(job, site.bench.at)
    for number in site.bench.running():
        site.bench.end(site.bench.scheduler.jobs[number])
    assert site.bench.look() == [last]
    assert list(pieces)
    assert (last.job_state, last.job_resrcs is None) == ("RUNNING", False)
