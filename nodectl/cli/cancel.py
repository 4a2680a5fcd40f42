"""`nodectl cancel`: end or signal jobs and steps, waiting or running."""

import argparse
import os
import signal
import time
from typing import Any

from nodectl.cli.list_jobs import states, users, words
from nodectl.cli.send_signal import signal_argument
from nodectl.client.command import Failed, complain
from nodectl.client.job_name import add_jobs, named
from nodectl.client.session import Session
from nodectl.model.step_number import step_name

_ASKED_AGAIN = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl cancel` to the parser."""
    add_jobs(parser, "jobs", steps=True, optional=True)
    parser.add_argument("-u", "--user", type=users, metavar="NAMES", help="all jobs of these users")
    parser.add_argument("--me", action="store_true", help="all your jobs")
    parser.add_argument("-n", "--name", "--jobname", dest="name", type=words, metavar="NAMES", help="jobs so named")
    parser.add_argument("-t", "--state", type=states, metavar="STATES", help="jobs in these states: PD, R, S")
    parser.add_argument(
        "-s", "--signal", type=signal_argument, metavar="NAME|NUMBER", help="send this signal to the steps instead"
    )
    parser.add_argument("-b", "--batch", action="store_true", help="signal the batch script alone")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell what was cancelled")
    parser.epilog = (
        "What is given besides jobs narrows their choice. Without any job it chooses among your jobs; among all jobs "
        "for root and members of the admin group."
    )


def main(arguments: argparse.Namespace) -> int:
    """Cancel the jobs and steps. Return 0, or 1 with a line on stderr for each failure."""
    chosen: dict[str, Any] = {"users": arguments.user, "names": arguments.name, "states": arguments.state}
    if arguments.me:
        chosen["users"] = [*(arguments.user or ()), str(os.getuid())]
    chosen = {name: value for name, value in chosen.items() if value}
    if not arguments.jobs and not chosen:
        raise Failed("nothing to cancel: give jobs, or --me, --user, --name or --state", 2)
    if arguments.signal is not None:
        chosen["signal"] = arguments.signal
    if arguments.batch:
        chosen["batch"] = True
    session = Session(arguments.settings, start_private=False)
    status = 0
    try:
        for job in named(session, arguments.jobs or ()) or (None,):
            try:
                told = _cancel(session, job, chosen)
            except Failed as failed:
                shown = "" if job is None else f" {job}" if isinstance(job, str) else f" {step_name(*job)}"
                complain(f"cancel{shown}: {failed}")
                status = 1
            else:
                if arguments.verbose and told:
                    print(*told, sep="\n")
    finally:
        session.close()
    return status


def _cancel(session: Session, job: "str | tuple[int, int] | None", chosen: dict[str, Any]) -> list[str]:
    if isinstance(job, tuple):
        return end_step(session, *job, chosen.get("signal"))
    named: dict[str, Any] = {} if job is None else {"jobs": [job]}
    reply: Any = session.call("Cancel", (), **named, **chosen)
    return list(reply["cancelled"])


def end_step(session: Session, job: int, step: int, number: int | None) -> list[str]:
    """Send the signal `number`, or else SIGTERM and, if the step has not ended after `kill_wait`, SIGKILL.

    Returns the name of the step in a list.
    """
    reply = session.call("Signal", job=job, step=step, signal=number or signal.SIGTERM.value)
    name = step_name(job, step)
    if number is not None or "cancelled" in reply:  # in a cluster, where the step still waited
        return [name]
    config: Any = session.call("Config")["config"]
    until = time.monotonic() + config["kill_wait"]
    while time.monotonic() < until:
        record: Any = session.call("Show", job=job, step=step)["record"]
        if record.get("ended") is not None:
            return [name]
        time.sleep(_ASKED_AGAIN)
    try:
        session.call("Signal", job=job, step=step, signal=signal.SIGKILL.value)
    except Failed:
        pass  # it has ended
    return [name]
