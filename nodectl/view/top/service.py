"""The user's actions on a row: calls to the service, a connection for each, answered in a line or a text."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.render.explanation import explained
from nodectl.client.render.layout import lines_of
from nodectl.client.session import Session
from nodectl.model.states import SUSPENDED
from nodectl.view.live.view import Row

SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "KILL")
Connect = Callable[[], Session]


def explain(connect: Connect, row: Row, width: int) -> list[str]:
    """Return why a job waits, or the layout of a step. Raises Failed."""
    session = connect()
    try:
        answer: Any
        if row.is_step:
            answer = session.call("Explain", job=row.job, step=row.step)["layout"]
            return [f"step {row.name} of {row.user}: {row.command}", "", *lines_of(answer, explain=True)]
        answer = session.call("ExplainJob", job=row.name)["explanation"]
        return explained(row.name, answer, width)
    finally:
        session.close()


def send(connect: Connect, row: Row, name: str) -> str:
    """Send a signal to a step's tasks. Return the words for the user. Raises Failed."""
    number = int(signal.Signals[f"SIG{name}"])
    return _called(connect, f"step {row.name}: sent {name}", "Signal", job=row.job, step=row.step, signal=number)


def cancel(connect: Connect, row: Row) -> str:
    """Cancel a job. Return the words for the user. Raises Failed."""
    return _called(connect, f"job {row.name} is cancelled", "Cancel", jobs=[row.name])


def suspend_or_resume(connect: Connect, row: Row) -> str:
    """Suspend a running step, or resume a suspended step. Return the words for the user. Raises Failed."""
    if not row.is_step:
        raise Failed(f"job {row.name} has no step that could be suspended")
    method, done = ("Resume", "goes on") if row.state == SUSPENDED else ("Suspend", "is suspended")
    return _called(connect, f"step {row.name} {done}", method, job=row.job, step=row.step)


def _called(connect: Connect, done: str, method: str, **parameters: object) -> str:
    session = connect()
    try:
        session.call(method, (), **parameters)
    finally:
        session.close()
    return done
