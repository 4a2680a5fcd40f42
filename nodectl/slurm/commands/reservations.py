"""Reservations in scontrol's and sinfo's words: show, create, delete."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.run_options import positive
from nodectl.client.session import Session
from nodectl.model.moments import moment as moment_of
from nodectl.model.number import seconds
from nodectl.model.words import duration, moment
from nodectl.slurm.commands import machine_facts
from nodectl.slurm.commands.host_names import expanded
from nodectl.slurm.commands.time_words import limit

_NONE = "No reservations in the system"
_KIND = ("reservation", "reservationname")
_WITHOUT_MEANING = ("partition", "partitionname")  # there is only one partition
_FLAGS = {"any_nodes", "part_nodes", "spec_nodes", "static", "static_alloc"}  # flags that always hold on one machine
_TRES = {"cpu": "cpus", "gres/gpu": "gpus"}
_REPEATS = {"daily", "weekday", "weekly"}


def _read(session: Session) -> list[dict[str, Any]]:
    found: Any = session.call("Reservations")["reservations"]
    return list(found)


def facts(session: Session, wanted: str) -> Iterator[list[list[str]]]:
    """Return the lines of `scontrol show reservation`. Raises Failed for an unknown name."""
    found = [one for one in _read(session) if wanted in ("", one["name"])]
    if not found:
        if wanted:
            raise Failed(f"Reservation {wanted[:40]} not found")
        print(_NONE)
    return (_facts(one, node) for node in machine_facts.read(session) for one in found)


def _facts(one: dict[str, Any], node: dict[str, Any]) -> list[list[str]]:
    start, end = float(one["start_time"]), float(one["end_time"])
    cpus = sum(int(mask).bit_count() for mask in one["held"].values())
    cores = one["core_cnt"] or node["sockets"] * node["cores_per_socket"]
    flags = [*one["flags"], *([] if one["core_cnt"] else ["SPEC_NODES"])]
    return [
        [
            f"ReservationName={one['name']}", f"StartTime={moment(start)}", f"EndTime={moment(end)}",
            f"Duration={duration(end - start)}",
        ],
        [
            f"Nodes={os.uname().nodename}", "NodeCnt=1", f"CoreCnt={cores}", "Features=(null)",
            f"PartitionName={node['partition']}", f"Flags={','.join(flags)}",
        ],
        [f"TRES=cpu={cpus}" + (f",gres/gpu={one['gpus']}" if one["gpus"] else "")],
        [
            f"Users={','.join(one['users'])}", "Groups=(null)", "Accounts=(null)", "Licenses=(null)",
            f"State={_state(one)}",
        ],
    ]  # fmt: skip


def _state(one: dict[str, Any]) -> str:
    return "ACTIVE" if one["start_time"] <= time.time() < one["end_time"] else "INACTIVE"


def table(session: Session) -> Iterator[str]:
    """Yield the lines of `sinfo -T`."""
    found = _read(session)
    if not found:
        yield _NONE
        return
    yield f"{'RESV_NAME':12} {'STATE':>8} {'START_TIME':>19} {'END_TIME':>19} {'DURATION':>11}  NODELIST"
    for one in found:
        start, end = float(one["start_time"]), float(one["end_time"])
        yield (
            f"{one['name']!s:12} {_state(one):>8} {moment(start):>19} {moment(end):>19} {limit(end - start):>11}  "
            f"{os.uname().nodename}"
        )


def create(session: Session, words: list[str]) -> None:
    """Make a reservation: create reservation KEY=VALUE..., or create ReservationName=NAME KEY=VALUE...

    Raises Failed.
    """
    first, _, name = words[0].partition("=") if words else ("", "", "")
    if first.lower() not in _KIND:
        raise Failed("only reservations are created: there are no other partitions and nodes")
    asked: dict[str, Any] = {"name": name} if name else {}
    for word in words[1:]:
        key, _, text = word.partition("=")
        if key.lower() in _WITHOUT_MEANING:
            continue
        if key.lower() not in _KEYS:
            raise Failed(f"{key[:40]} of a reservation is not supported")
        try:
            asked |= _KEYS[key.lower()](session, text)
        except ValueError as error:
            raise Failed(f"{key}: {error}") from None
    if "users" not in asked:
        raise Failed("a reservation is for users: name them with Users=")
    if ("end" in asked) == ("duration" in asked):
        raise Failed("a reservation has an end: give EndTime= or Duration=")
    made = session.call("CreateReservation", **({"start": moment_of("now")} | asked))
    print(f"Reservation created: {made['name']}")


def delete(session: Session, words: list[str]) -> None:
    """Delete a reservation: delete ReservationName=NAME. Raises Failed."""
    key, _, name = words[0].partition("=") if words else ("", "", "")
    name = name or "".join(words[1:2])
    if key.lower() not in _KIND or not name:
        raise Failed("only reservations are deleted: delete ReservationName=NAME")
    session.call("DeleteReservation", name=name)


Asked = dict[str, Any]


def _nodes(session: Session, text: str) -> Asked:
    if text.upper() != "ALL":
        machine_facts.look_for_nodes(session, expanded(text))
    return {}


def _node_count(_session: Session, text: str) -> Asked:
    if positive(text) != 1:
        raise ValueError("there is one node")
    return {}


def _tres(_session: Session, text: str) -> Asked:
    asked: Asked = {}
    for word in text.split(","):
        key, _, count = word.partition("=")
        if key.lower() not in _TRES:
            raise ValueError("only cpu=N and gres/gpu=N are kept")
        asked[_TRES[key.lower()]] = positive(count)
    return asked


def _flags(_session: Session, text: str) -> Asked:
    asked: Asked = {}
    for flag in text.lower().split(","):
        if flag in _REPEATS:
            asked = {"repeat": flag}
        elif flag not in _FLAGS:
            raise ValueError(f"{flag[:40]} is not supported")
    return asked


def _users(_session: Session, text: str) -> Asked:
    return {"users": [user for user in text.split(",") if user]}


_KEYS: dict[str, Callable[[Session, str], Asked]] = {
    "reservation": lambda _session, text: {"name": text},
    "reservationname": lambda _session, text: {"name": text},
    "start": lambda _session, text: {"start": moment_of(text)},
    "starttime": lambda _session, text: {"start": moment_of(text)},
    "end": lambda _session, text: {"end": moment_of(text)},
    "endtime": lambda _session, text: {"end": moment_of(text)},
    "duration": lambda _session, text: {"duration": seconds(text)},
    "user": _users,
    "users": _users,
    "corecnt": lambda _session, text: {"cores": positive(text)},
    "tres": _tres,
    "node": _nodes,
    "nodes": _nodes,
    "nodecnt": _node_count,
    "flag": _flags,
    "flags": _flags,
}
