"""The figures of a play: waiting times, slowdown, utilisation, shares of the users. Pure.

A wait runs from the earliest possible start of a job (submission, begin time, dependencies) to the first start. The
bounded slowdown of a job is the ratio of its time in the system to its run time, which counts as at least ten seconds.
Utilisation is the ratio of CPU seconds held to CPU seconds available from the first submission to the last end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nodectl.client.render.table import pairs, table
from nodectl.lab.simulation.story import Played, Run, Story
from nodectl.model.cpu_list import format_cpulist
from nodectl.model.words import duration

_BOUND = 10.0
_MOST_USERS = 20
_MOST_VIOLATIONS = 20
_MOST_PLACES = 4  # nodes of a job in the table


def figures(played: Played) -> dict[str, Any]:
    """Return all figures as values: seconds, shares from 0 to 1."""
    began = [story for story in played.stories if story.runs]
    first = min((story.submit for story in played.stories), default=0.0)
    span = max(0.0, played.end - first)
    states: dict[str, int] = {}
    for story in played.stories:
        states[story.state] = states.get(story.state, 0) + 1
    held = sum(_cpu_seconds(story, played.end) for story in played.stories)
    memory = sum(node[3] for node in played.nodes)
    bytes_held = sum(_memory_seconds(run, played.end) for story in played.stories for run in story.runs)
    return {
        "plugin": played.plugin,
        "workload": played.workload,
        "jobs": len(played.stories),
        "states": dict(sorted(states.items())),
        "wait": _spread([story.wait for story in began]),
        "slowdown": _spread([slowdown(story, played.end) for story in began]),
        "makespan": span,
        "utilisation": held / (span * played.cpus) if span and played.cpus else 0.0,
        "memory_utilisation": bytes_held / (span * memory) if span and memory else 0.0,
        "restarts": sum(max(0, len(story.runs) - 1) for story in played.stories),
        "suspensions": sum(len(run.pauses) for story in played.stories for run in story.runs),
        "users": _users(played, held),
        "violations": [
            {"time": one.time, "rule": one.rule, "jobs": list(one.jobs), "words": one.words}
            for one in played.violations
        ],
        "notes": list(played.notes),
        "calls": {name: {"calls": count, "seconds": spent} for name, (count, spent) in sorted(played.calls.items())},
        "real_seconds": played.real_seconds,
    }


def slowdown(story: Story, until: float) -> float:
    """Return the bounded slowdown of a job after a run."""
    run = sum(one.seconds(until) for one in story.runs)
    end = story.end if story.end >= 0 else until
    return max(1.0, (end - story.ready) / max(run, _BOUND))


def utilisation(played: Played) -> list[tuple[float, float]]:
    """Return the share of CPUs in use from the time of each change on."""
    changes: dict[float, int] = {}
    for story in played.stories:
        for run in story.runs:
            end = run.end if run.end >= 0 else played.end
            edges = [(run.start, run.cpus), (end, -run.cpus)]
            for down, up in run.pauses:
                edges += [(down, -run.cpus), (up if up >= 0 else end, run.cpus)]
            for time, change in edges:
                changes[time] = changes.get(time, 0) + change
    held, curve = 0, []
    for time in sorted(changes):
        held += changes[time]
        curve.append((time, held / played.cpus if played.cpus else 0.0))
    return curve


def waiting(played: Played) -> list[tuple[float, int]]:
    """Return the number of waiting jobs from the time of each change on."""
    changes: dict[float, int] = {}
    for story in played.stories:
        end = story.runs[0].start if story.runs else story.end if story.end >= 0 else played.end
        for time, change in ((story.ready, 1), (max(end, story.ready), -1)):
            changes[time] = changes.get(time, 0) + change
    held, curve = 0, []
    for time in sorted(changes):
        held += changes[time]
        curve.append((time, held))
    return curve


def text(many: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the figures of a play as lines, or of several plays in columns."""
    head = pairs([("workload", many[0]["workload"]), ("jobs", many[0]["jobs"])])
    rows = [[name, *(str(values(one)) for one in many)] for name, values in _ROWS.items()]
    lines = [*head, "", *table(["", *(one["plugin"] for one in many)], rows, right=[one["plugin"] for one in many])]
    for one in many:
        lines += ["", *_user_lines(one, title=len(many) > 1)]
    for one in many:
        lines += _said(one, title=len(many) > 1)
    return lines


_ROWS: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "states": lambda one: " ".join(f"{count} {state}" for state, count in one["states"].items()),
    "wait: mean": lambda one: duration(one["wait"]["mean"]),
    "wait: median": lambda one: duration(one["wait"]["median"]),
    "wait: 95 % below": lambda one: duration(one["wait"]["p95"]),
    "wait: longest": lambda one: duration(one["wait"]["max"]),
    "slowdown: mean": lambda one: f"{one['slowdown']['mean']:.2f}",
    "slowdown: median": lambda one: f"{one['slowdown']['median']:.2f}",
    "slowdown: 95 % below": lambda one: f"{one['slowdown']['p95']:.2f}",
    "CPUs in use": lambda one: f"{one['utilisation']:.1%}",
    "memory in use": lambda one: f"{one['memory_utilisation']:.1%}",
    "until the last end": lambda one: duration(one["makespan"]),
    "restarts": lambda one: one["restarts"],
    "suspensions": lambda one: one["suspensions"],
    "rules broken": lambda one: len(one["violations"]),
    "job_test: calls": lambda one: one["calls"].get("select_p_job_test", {"calls": 0})["calls"],
    "job_test: mean": lambda one: _call_time(one["calls"].get("select_p_job_test")),
    "played in": lambda one: f"{one['real_seconds']:.2f} s",
}


def _call_time(call: Mapping[str, float] | None) -> str:
    return f"{call['seconds'] / call['calls'] * 1e6:.0f} us" if call and call["calls"] else "-"


def _user_lines(one: Mapping[str, Any], *, title: bool) -> list[str]:
    rows = [
        [user["user"], user["jobs"], f"{user['cpu_seconds'] / 3600:.1f}", f"{user['share']:.1%}",
         duration(user["wait"]["mean"]), duration(user["wait"]["max"]), f"{user['slowdown']:.2f}"]
        for user in one["users"][:_MOST_USERS]
    ]  # fmt: skip
    header = ["USER", "JOBS", "CPU HOURS", "SHARE", "WAIT", "LONGEST", "SLOWDOWN"]
    more = len(one["users"]) - len(rows)
    return [
        *([f"{one['plugin']}:"] if title else []),
        *table(header, rows, right=header[1:]),
        *([f"and {more} more"] if more > 0 else []),
    ]


def stories(played: Played) -> list[dict[str, Any]]:
    """Return for each job the times of submission, start and end, the places and the end state."""
    return [
        {
            "job": story.label,
            "user": story.user,
            "submit": story.submit,
            "ready": story.ready,
            "start": story.start,
            "end": story.end,
            "state": story.state,
            "reason": story.reason,
            "cpus": story.cpus,
            "limit": story.limit,
            "runs": [
                {
                    "start": run.start,
                    "end": run.end,
                    "how": run.how,
                    "pauses": run.pauses,
                    "nodes": {
                        played.nodes[node][0]: {
                            "cores": list(share.cores), "cpus": share.cpus, "memory": share.memory,
                            "gres": list(share.gres),
                        }
                        for node, share in run.shares.items()
                    },
                }
                for run in story.runs
            ],
        }
        for story in played.stories
    ]  # fmt: skip


def job_lines(played: Played) -> list[str]:
    """Return a table of the jobs, in the order of submission."""
    rows = [
        [story.label, story.user, story.cpus, duration(story.submit), duration(story.start) if story.runs else "-",
         duration(story.wait) if story.runs else "-", duration(story.end) if story.end >= 0 else "-",
         _places(played, story), f"{story.state} {story.reason}".rstrip()]
        for story in played.stories
    ]  # fmt: skip
    header = ["JOB", "USER", "CPUS", "SUBMIT", "START", "WAIT", "END", "CORES", "STATE"]
    return [f"{played.plugin}:", *table(header, rows, right=header[2:7])]


def _places(played: Played, story: Story) -> str:
    if not story.runs:
        return "-"
    words = [
        f"{played.nodes[node][0]}:{format_cpulist(share.cores)}"
        for node, share in sorted(story.runs[-1].shares.items())
    ]
    return " ".join(words[:_MOST_PLACES]) + (f" +{len(words) - _MOST_PLACES}" if len(words) > _MOST_PLACES else "")


def _said(one: Mapping[str, Any], *, title: bool) -> list[str]:
    # Repeated violations are printed once, with their number.
    times: dict[str, list[float]] = {}
    for found in one["violations"]:
        times.setdefault(f"{found['rule']}: {found['words']}", []).append(found["time"])
    broken = [
        f"{moments[0]:.0f} s: {words}" + (f" ({len(moments)} times)" if len(moments) > 1 else "")
        for words, moments in times.items()
    ]
    lines = [*one["notes"], *broken[:_MOST_VIOLATIONS]]
    if len(broken) > _MOST_VIOLATIONS:
        lines.append(f"and {len(broken) - _MOST_VIOLATIONS} more broken rules")
    return ["", *([f"{one['plugin']}:"] if title else []), *lines] if lines else []


def _users(played: Played, held: float) -> list[dict[str, Any]]:
    """Return the figures by user, users with the most CPU seconds first."""
    stories: dict[str, list[Story]] = {}
    for story in played.stories:
        stories.setdefault(story.user, []).append(story)
    rows = []
    for user, own in stories.items():
        used = sum(_cpu_seconds(story, played.end) for story in own)
        began = [story for story in own if story.runs]
        slow = _spread([slowdown(story, played.end) for story in began])
        rows.append(
            {
                "user": user,
                "jobs": len(own),
                "cpu_seconds": used,
                "share": used / held if held else 0.0,
                "wait": _spread([story.wait for story in began]),
                "slowdown": slow["mean"],
            }
        )
    return sorted(rows, key=lambda row: (-row["cpu_seconds"], row["user"]))


def _cpu_seconds(story: Story, until: float) -> float:
    return sum(run.cpus * run.seconds(until) for run in story.runs)


def _memory_seconds(run: Run, until: float) -> float:
    end = run.end if run.end >= 0 else until
    return sum(share.memory for share in run.shares.values()) * (end - run.start)


def _spread(values: Iterable[float]) -> dict[str, float]:
    """Return mean, median, 95th percentile (nearest rank) and largest; zeros without values."""
    ordered = sorted(values)
    if not ordered:
        return {"mean": 0.0, "median": 0.0, "p95": 0.0, "max": 0.0}
    return {
        "mean": sum(ordered) / len(ordered),
        "median": ordered[(len(ordered) - 1) // 2],
        "p95": ordered[-(-95 * len(ordered) // 100) - 1],
        "max": ordered[-1],
    }
