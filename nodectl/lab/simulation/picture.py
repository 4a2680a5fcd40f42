"""A play as a Gantt chart: the input for `nodectl.lab.simulation.gantt`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from nodectl.lab.simulation import report
from nodectl.lab.simulation.gantt import Bar, Chart
from nodectl.lab.simulation.story import Played, Run, Story
from nodectl.model.words import duration


def chart(played: Played) -> Chart:
    """Return the chart of a play."""
    firsts = [0, *accumulate(cores for _, cores, _, _ in played.nodes)]
    found = report.figures(played)
    return Chart(
        played.plugin,
        [(name, cores) for name, cores, _, _ in played.nodes],
        [
            bar
            for story in played.stories
            for number, run in enumerate(story.runs)
            for bar in _bars(story, run, number, firsts, played.end)
        ],
        report.utilisation(played),
        report.waiting(played),
        [(one.time, f"{one.rule}: {one.words}") for one in played.violations],
        (
            f"{found['utilisation']:.0%} of CPUs in use",
            f"wait {duration(found['wait']['mean'])} on average, {duration(found['wait']['max'])} at most",
            f"{duration(found['makespan'])} in all",
        ),
    )


def _bars(story: Story, run: Run, number: int, firsts: list[int], until: float) -> Iterator[Bar]:
    end = run.end if run.end >= 0 else until
    rows = tuple(_rows(run, firsts))
    title = _title(story, run, number, end)
    at = run.start
    for down, up in run.pauses:
        again = up if up >= 0 else end
        yield Bar(at, down, rows, story.user, story.label, title)
        yield Bar(down, again, rows, story.user, "", f"{title}\nsuspended", pale=True)
        at = again
    yield Bar(at, end, rows, story.user, story.label, title)


def _rows(run: Run, firsts: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the run's cores, numbered over all nodes, as ranges."""
    begin = last = -1
    for core in sorted(firsts[node] + core for node, share in run.shares.items() for core in share.cores):
        if core != last + 1 or begin < 0:
            if begin >= 0:
                yield begin, last + 1
            begin = core
        last = core
    if begin >= 0:
        yield begin, last + 1


def _title(story: Story, run: Run, number: int, end: float) -> str:
    memory = sum(share.memory for share in run.shares.values())
    devices = [device for share in run.shares.values() for device in share.gres]
    facts = [f"{run.cpus} CPUs", *([f"{memory} MiB"] if memory else []), *devices]
    again = f", start {number + 1}" if number else ""
    limit = f" of {duration(story.limit)}" if story.limit else ""
    return "\n".join(
        [
            f"job {story.label} of {story.user}: {', '.join(facts)}",
            f"waited {duration(run.start - story.ready)}{again}",
            f"ran {duration(end - run.start)}{limit}: {run.how or 'still running'}",
        ]
    )
