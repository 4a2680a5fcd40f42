"""`nodectl explain`: print why a job waits, or the rule behind a step's layout.

For a step the output is that of `nodectl bind --explain` for a step to come.
"""

import argparse
import json
from typing import Any, cast

from nodectl.client.command import Failed
from nodectl.client.job_name import job_or_step
from nodectl.client.render.explanation import explained
from nodectl.client.render.layout import lines_of
from nodectl.client.render.terminal import put, terminal_width
from nodectl.client.session import Session
from nodectl.model.states import RUNNING
from nodectl.model.step_number import FIRST, step_name
from nodectl.model.wire.names import NODE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl explain` to the parser."""
    parser.add_argument(
        "job", type=job_or_step, metavar="JOB[.STEP]", help="the job; of one that runs its first step, or the step"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object; of a step as `nodectl bind --explain --json` does"
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the explanation, or the layout and the rule. Return 0."""
    session = Session(arguments.settings)
    try:
        if isinstance(arguments.job, tuple):
            return _layout(session, *arguments.job, as_json=arguments.json)
        answer = _waiting(session, arguments.job)
        if answer is None or (arguments.job.isdecimal() and answer.get("state") == RUNNING):
            try:
                return _layout(session, int(arguments.job), FIRST, as_json=arguments.json)
            except Failed as failed:
                if failed.name != f"{NODE}.NoSuchStep":
                    raise
                if answer is None:
                    raise Failed(_gone(session, int(arguments.job))) from None
    finally:
        session.close()
    if arguments.json:
        print(json.dumps(answer))
    else:
        put(explained(arguments.job, answer, terminal_width()))
    return 0


def _waiting(session: Session, job: str) -> dict[str, Any] | None:
    """Return why a job waits; None for a job which ended some time ago or never existed. Raises Failed."""
    try:
        return cast("dict[str, Any]", session.call("ExplainJob", job=job)["explanation"])
    except Failed as failed:
        if failed.name != f"{NODE}.NoSuchJob" or not job.isdecimal():
            raise
        return None


def _gone(session: Session, job: int) -> str:
    """Return the words about a job neither waiting nor running. Raises Failed."""
    try:
        record = cast("dict[str, Any]", session.call("Show", job=job, step=FIRST)["record"])
    except Failed as failed:
        if failed.name != f"{NODE}.NoSuchStep":
            raise
        return f"no job {job} waits, runs or is in the history"
    return f"job {job} has ended: {record['state']}"


def _layout(session: Session, job: int, step: int, *, as_json: bool) -> int:
    reply = cast("dict[str, Any]", session.call("Explain", job=job, step=step))
    waits = "explanation" in reply  # in a cluster, a step may wait too
    answer = reply["explanation"] if waits else reply["layout"]
    if as_json:
        print(json.dumps(answer))
    elif waits:
        put(explained(step_name(job, step), answer, terminal_width()))
    else:
        put(lines_of(answer, explain=True))
    return 0
