"""`nodectl explain`: print why a job waits, or the rule behind a step's layout.

For a step the output is that of `nodectl bind --explain` for a step to come.
"""

import argparse
import contextlib
import json
from typing import Any, cast

from nodectl.client.command import Failed
from nodectl.client.job_name import add_jobs, named, number_of
from nodectl.client.render.explanation import explained
from nodectl.client.render.layout import lines_of
from nodectl.client.render.terminal import put, terminal_width
from nodectl.client.session import Session
from nodectl.model.states import RUNNING
from nodectl.model.step_number import FIRST, step_name
from nodectl.model.wire.names import NODE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl explain` to the parser."""
    add_jobs(parser, "the jobs; of one that runs its first step, or the step", steps=True)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object; of a step as `nodectl bind --explain --json` does"
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the explanations, or the layouts and the rules. Return 0."""
    session = Session(arguments.settings)
    try:
        for place, name in enumerate(named(session, arguments.jobs)):
            if place and not arguments.json:
                print()
            _explain(session, name, as_json=arguments.json)
    finally:
        session.close()
    return 0


def _explain(session: Session, name: "str | tuple[int, int]", *, as_json: bool) -> None:
    """Print the explanation of a job or step. Raises Failed."""
    if isinstance(name, tuple):
        _layout(session, *name, as_json=as_json)
        return
    answer = _waiting(session, name)
    if answer is None or answer.get("state") == RUNNING:
        try:
            _layout(session, number_of(session, name), FIRST, as_json=as_json)
        except Failed as failed:
            if failed.name not in (f"{NODE}.NoSuchStep", f"{NODE}.NoSuchJob"):
                raise
            if answer is None:
                raise Failed(_gone(session, name)) from None
        else:
            return
    if as_json:
        print(json.dumps(answer))
    else:
        put(explained(name, answer or {}, terminal_width()))


def _waiting(session: Session, job: str) -> dict[str, Any] | None:
    """Return why a job waits; None for a job which ended some time ago or never existed. Raises Failed."""
    try:
        return cast("dict[str, Any]", session.call("ExplainJob", job=job)["explanation"])
    except Failed as failed:
        if failed.name != f"{NODE}.NoSuchJob":
            raise
        return None


def _gone(session: Session, job: str) -> str:
    """Return the words about a job neither waiting nor running."""
    record: dict[str, Any] = {}
    with contextlib.suppress(Failed):  # a cluster knows steps alone
        record = cast("dict[str, Any]", session.call("Show", job=number_of(session, job), step=FIRST)["record"])
    with contextlib.suppress(Failed):
        record = cast("dict[str, Any]", session.call("ShowJob", job=job)["record"])
    if not record:
        return f"no job {job} waits, runs or is in the history"
    words = f" ({record['words']})" if record.get("words") else ""
    return f"job {job} has ended: {record['state']}{words}; `nodectl show {job}` tells more"


def _layout(session: Session, job: int, step: int, *, as_json: bool) -> None:
    reply = cast("dict[str, Any]", session.call("Explain", job=job, step=step))
    waits = "explanation" in reply  # in a cluster, a step may wait too
    answer = reply["explanation"] if waits else reply["layout"]
    if as_json:
        print(json.dumps(answer))
    elif waits:
        put(explained(step_name(job, step), answer, terminal_width()))
    else:
        put(lines_of(answer, explain=True))
