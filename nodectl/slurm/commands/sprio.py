"""sprio: the factors of waiting jobs' priorities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from nodectl.client.command import GlobalOptions
from nodectl.client.render.job_columns import name_of
from nodectl.client.render.terminal import put
from nodectl.client.session import Session
from nodectl.model.states import PENDING
from nodectl.slurm.commands import jobs, sort_order
from nodectl.slurm.commands.column_format import Field, Row, by_letters, lines_of
from nodectl.slurm.commands.command_line import HELP, read_line
from nodectl.slurm.commands.option_words import ARGUMENT, Option

_TABLE = (
    Option("format", "o", ARGUMENT, "columns: %[.][width]letter"),
    Option("jobs", "j", ARGUMENT, "these jobs: 7,8_3"),
    Option("long", "l", text="more columns"),
    Option("noheader", "h", text="no line of headers"),
    Option("norm", "n", text="factors from 0 to 1 in place of points"),
    Option("partition", "p", ARGUMENT, "of any partition: all names are the one that there is"),
    Option("sort", "S", ARGUMENT, "by these letters of --format, - for the highest first"),
    Option("user", "u", ARGUMENT, "of these users"),
    Option("weights", "w", text="how many points each factor can give"),
    *HELP,
    Option("cluster", "", ARGUMENT, same="clusters"),
    Option("clusters", "M", ARGUMENT),
    Option("federation"),
    Option("local"),
    Option("sibling"),
)
_USUAL = "%.15i %9r %.10Y %.10S %.10A %.10F %.10J %.10Q"
_LONG = "%.15i %9r %.8u %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.11N %.20T"
_NORMAL = "%.15i %9r %.10y %.10a %.10f %.10j %.10q"
_HIGHEST = 2**32 - 1  # of a priority
_FACTORS = {"age": "aA", "fairshare": "fF", "job_size": "jJ", "qos": "qQ"}
_HEADERS = {"age": "AGE", "fairshare": "FAIRSHARE", "job_size": "JOBSIZE", "qos": "QOS"}
_NOWHERE = {"B": "ASSOC", "b": "ASSOC", "P": "PARTITION", "p": "PARTITION", "S": "SITE", "s": "SITE"}  # always 0


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    given = read_line(words, _TABLE, "[OPTIONS]")
    usual = _LONG if "long" in given else _NORMAL if "norm" in given else _USUAL
    layout = by_letters(given.value("format") or usual, _FIELDS)
    with closing(Session(settings, start_private=False)) as session:
        config: Any = session.call("Config")["config"]
        weights = {factor: int(config[f"priority_weight_{factor}"]) for factor in _FACTORS}
        rows = [_weights(weights)] if "weights" in given else []
        if not rows:
            wanted = {
                "jobs": jobs.jobs_named(given.options.get("jobs", ())),
                "users": jobs.users_named(given.listed("user")),
                "states": [PENDING], "points": True,
            }  # fmt: skip
            waiting = (job for job in jobs.queued(session, wanted) if not job["held"])
            rows = [{**job, "weights": weights} for job in waiting]
    rows = sort_order.ordered(rows, given.value("sort", "i"), _FIELDS, {"i": lambda job: int(job["job"])})
    put(lines_of(layout, rows, header="noheader" not in given))
    return 0


def _weights(weights: Mapping[str, int]) -> dict[str, Any]:
    """Return a row with the weights in place of the points."""
    return {"job": 0, "points": {**weights, "nice": "", "direct": 0}, "weights": weights}


def _points(factor: str) -> Callable[[Row], object]:
    return lambda job: round(job["points"][factor]) if not job["points"]["direct"] else 0


def _part(factor: str) -> Callable[[Row], object]:
    def part(job: Row) -> str:
        weight = job["weights"][factor]
        return f"{job['points'][factor] / weight if weight and not job['points']['direct'] else 0:.7f}"

    return part


_FIELDS = (
    Field("i", "", "JOBID", lambda job: name_of(job) if job["job"] else "Weights"),
    Field("r", "", "PARTITION", lambda job: job.get("partition") or ""),
    Field("u", "", "USER", lambda job: job.get("user") or ""),
    Field("Y", "", "PRIORITY", lambda job: job.get("priority", "")),
    Field("y", "", "PRIORITY", lambda job: f"{job.get('priority', 0) / _HIGHEST:.14f}"),
    Field("N", "", "NICE", lambda job: job["points"]["nice"]),
    Field("T", "", "TRES", lambda _job: ""),
    Field("t", "", "TRES", lambda _job: ""),
    *(Field(letters[1], "", _HEADERS[factor], _points(factor)) for factor, letters in _FACTORS.items()),
    *(Field(letters[0], "", _HEADERS[factor], _part(factor)) for factor, letters in _FACTORS.items()),
    *(Field(letter, "", header, lambda _job: 0) for letter, header in _NOWHERE.items()),
)
