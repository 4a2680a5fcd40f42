"""`nodectl explain`: print why a job waits, or the rule behind a step's layout.

For a step the output is that of `nodectl bind --explain` for a step to come.
"""

import argparse
import contextlib
import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, cast

from nodectl.client.command import Failed, complain
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
        "--json",
        action="store_true",
        help='print one JSON object, of a step as `nodectl bind --explain --json` does; of several {"explanations": '
        "[...]}",
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the explanations, or the layouts and the rules. Return 0; of several 1, with a line for each failure."""
    session = Session(arguments.settings)
    answers: list[Mapping[str, Any]] = []
    status = 0
    try:
        names = list(chain.from_iterable(_apart(session, name) for name in named(session, arguments.jobs)))
        for name in names:
            try:
                answer, lines = _explained(session, name)
            except Failed as failed:
                if len(names) == 1:
                    raise
                complain(str(failed))
                status = 1
                continue
            if not arguments.json:
                put([*([""] if answers else []), *lines])
            answers.append({"job": name if isinstance(name, str) else step_name(*name), **answer})
    finally:
        session.close()
    if arguments.json:
        print(json.dumps(answers[0] if len(names) == 1 else {"explanations": answers}))
    return status


def _apart(session: Session, name: "str | tuple[int, int]") -> "Sequence[str | tuple[int, int]]":
    """Return each task of a name like 42_[0-4] of which no task waits, else the name, explained as a whole."""
    if isinstance(name, tuple) or "[" not in name or _waiting(session, name) is not None:
        return [name]
    return named(session, [name], apart=True)


def _explained(session: Session, name: "str | tuple[int, int]") -> tuple[dict[str, Any], list[str]]:
    """Return the explanation of a job or step, and its lines. Raises Failed."""
    if isinstance(name, tuple):
        return _layout(session, *name)
    answer = _waiting(session, name)
    if answer is None or answer.get("state") == RUNNING:
        try:
            return _layout(session, number_of(session, name), FIRST)
        except Failed as failed:
            if failed.name not in (f"{NODE}.NoSuchStep", f"{NODE}.NoSuchJob"):
                raise
            if answer is None:
                raise Failed(_gone(session, name)) from None
    return answer, explained(name, answer, terminal_width())


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
    if str(record.get("array_job")) == job:
        return f"all tasks of job {job} have ended; `nodectl acct -j {job}` lists them"
    words = f" ({record['words']})" if record.get("words") else ""
    return f"job {job} has ended: {record['state']}{words}; `nodectl show {job}` tells more"


def _layout(session: Session, job: int, step: int) -> tuple[dict[str, Any], list[str]]:
    """Return the layout of a step, and its lines. Raises Failed."""
    reply = cast("dict[str, Any]", session.call("Explain", job=job, step=step))
    if "explanation" in reply:  # in a cluster, a step may wait too
        answer = reply["explanation"]
        return answer, explained(step_name(job, step), answer, terminal_width())
    return reply["layout"], lines_of(reply["layout"], explain=True)
