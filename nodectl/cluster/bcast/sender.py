"""The sender of a file to every node of the cluster. Run by `nodectl bcast`."""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from typing import Any

from nodectl.client.command import Failed, GlobalOptions, complain
from nodectl.client.launch_request import job_environment, make_request
from nodectl.client.run_options import RunParser
from nodectl.client.session import Events, Session
from nodectl.client.signals import Signals
from nodectl.cluster.engine import program
from nodectl.model.states import COMPLETED
from nodectl.model.wire import framing

_CHUNK = 65536
_MOST_TOLD = 8  # nodes


def replace(gateway: str, nodes: int, path: str, target: str) -> None:
    """Write a file on all nodes, replacing any existing file. `gateway`: a socket of the cluster. Raises Failed."""
    settings = GlobalOptions()
    settings.config, settings.socket = None, gateway
    try:
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Failed(f"--bcast: {path}: {error.strerror}") from None
    session = Session(settings, start_private=False)
    try:
        mode = os.fstat(source).st_mode & 0o777
        if send(session, nodes, source, target, {"mode": mode, "force": True}):
            raise Failed("--bcast: the program is not on all nodes")
    finally:
        session.close()
        os.close(source)


def send(session: Session, nodes: int, source: int, path: str, names: Mapping[str, Any]) -> int:
    """Write a file on all nodes. Return 0, or 1 with a line on stderr for each node without the file.

    `source`: a descriptor of the file; `names`: mode, force, and perhaps times, as of the call Bcast. Raises Failed.
    """
    status = os.fstat(source)
    # A task whose node cannot enter the directory runs in /tmp, where the file must not go.
    whole = os.path.join(os.getcwd(), path)
    words = [
        whole, f"{names['mode']:o}", str(int(names["force"])), str(status.st_size), *map(str, names.get("times", ())),
    ]  # fmt: skip
    parsed = RunParser().parse([
        f"--nodes={nodes}", f"--ntasks={nodes}", "--overlap", "--cpu-bind=none", "--job-name=bcast", "--input=all",
        "--", *program.module("nodectl.cluster.bcast.receiver"), *words,
    ])  # fmt: skip
    reader, writer = os.pipe2(os.O_CLOEXEC)
    session.streams = (source, writer, 2)
    try:
        _, _, events = session.launch({**make_request(parsed), "environment": job_environment(parsed)})
    finally:
        os.close(writer)
    with open(reader, "rb", closefd=True) as told:
        lines, record = _heard(events, told.fileno(), session.hold_signals())
    session.let_signals_go()
    failed = [line.partition(" ")[::2] for line in lines]
    for node, why in failed[:_MOST_TOLD]:
        complain(f"bcast {path} on {node}: {why}")
    if len(failed) > _MOST_TOLD:
        complain(f"bcast {path}: not on {len(failed) - _MOST_TOLD} more nodes either")
    if record is None or (record.get("state") != COMPLETED and not failed):
        raise Failed(f"bcast {path}: {(record or {}).get('reason') or 'its step has gone without a word'}")
    return int(bool(failed))


def _heard(events: Events, told: int, signals: Signals) -> tuple[list[str], Mapping[str, Any] | None]:
    """Return the tasks' output lines, and the step's record, None for none. Raises Interrupted."""
    said, record = b"", None
    poll = select.poll()
    for fd in (told, events.fd, signals.fd):
        poll.register(fd, select.POLLIN)
    waits_for = {told, events.fd}
    while waits_for:
        ready = {fd for fd, _ in poll.poll()}
        signals.end_if_any()
        for fd in ready & waits_for:
            if fd == told:
                data = os.read(told, _CHUNK)
                said += data
                alive = bool(data)
            else:
                alive, found = _read(events)
                record = found or record
            if not alive:
                poll.unregister(fd)
                waits_for.discard(fd)
    return said.decode("utf-8", "replace").splitlines(), record


def _read(events: Events) -> tuple[bool, Mapping[str, Any] | None]:
    """Return whether more events follow, and the record, if present."""
    try:
        messages, alive = events.read()
    except (OSError, framing.BrokenWire):
        return False, None
    record = None
    for message in messages:
        event: Any = message.get("parameters", {}).get("event", {})  # type: ignore[attr-defined]
        if event.get("event") == "end":
            record, alive = event["record"], False
    return alive, record
