"""What may have become of a step, by what it suffered: docs/failures.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from torture.works import Work

RIGHT, LOST, WRONG = "right", "lost", "wrong"
SIGNALS = {"KILL": 9, "TERM": 15}
SCARCE = ("descriptors", "memory", "full")
SERVICE = ("daemon", "listener", "forkserver", "machine")
RUNNERS = ("stepd", "runner")
_REFUSED = ("FAILED", "NODE_FAIL", "CANCELLED")
Record = Mapping[str, object] | None


def judge(work: Work, record: Record) -> tuple[str, str]:
    """The verdict, and why where it is not `right`."""
    if any(_fits(end, work, record) for end in ends(work)):
        return RIGHT, ""
    who = work.user.pw_name if work.user else "root"
    why = (
        f"{work.name} {' '.join(work.words)}: client {work.ended} of {who}, out {work.out!r}, err {work.err!r}, "
        f"hooks {work.hooks}, suffered {work.suffered}, known {work.status} {list(work.lines)}, record "
        + ("none" if record is None else f"{record['job']}.{record['step']} {record['state']} "
           f"{record['exit_status']} {record['reason']!r}")
    )  # fmt: skip
    runner_struck = any(target in RUNNERS and how != "STOP" for target, how in work.suffered)
    lost = record is None or (record["state"] == "NODE_FAIL" and not runner_struck)
    return (LOST if work.ran and lost else WRONG), why


def ends(work: Work) -> set[str]:
    """What that page permits: always the end that is known; and what each fault may have made of it."""
    permitted = {"known"}
    for target, how in work.suffered:
        deadly = how in SIGNALS
        if target in RUNNERS and deadly:
            permitted.add("runner died")
        if (target, how) == ("stepd", "TERM"):
            permitted.add("told to stop")
        if target in ("stepd", "forkserver") and how in SCARCE:
            permitted.add("failed")  # a stepd has the limits that its forkserver had
        if target == "client" and deadly:
            permitted |= {"cancelled", "never"}
        if (target == "task" and deadly) or (target, how) == ("client", "TERM"):
            permitted.add(f"signal {SIGNALS[how]}")
        if (target, how) == ("client", "TERM"):
            permitted.add("waited")
        if target in SERVICE and how != "STOP":
            permitted.add("refused")
        if target in ("daemon", "listener") and how != "STOP":
            permitted.add("unanswered")
        if target == "listener" and how != "STOP":
            # Who dies, or has no descriptors, is the client's session, between the launch and its answer.
            permitted |= {"left", "unsent"} if how == "descriptors" else {"left"}
    return permitted


def _fits(end: str, work: Work, record: Record) -> bool:
    state = None if record is None else record["state"]
    status = None if record is None else record["exit_status"]
    gone = work.ended is not None and work.ended < 0  # the client was killed
    match end.split():
        case ["known"]:
            right = (state, status) == ("FAILED" if work.status else "COMPLETED", work.status)
            return right and (gone or (work.ended == work.status and _told(work)))
        case ["refused"]:
            told = gone or (work.ended == 1 and bool(work.err))
            return told and not work.ran and _no_step(record)
        case ["unanswered"]:
            known = (state, status) == ("FAILED" if work.status else "COMPLETED", work.status)
            return work.ended == 1 and "away" in work.err and (known or _no_step(record))
        case ["left"] | ["unsent"]:  # the latter: a session could not pass on what its client had launched
            words = "away" if end == "left" else "descriptors of yours"
            return work.ended == 1 and words in work.err and _was_left(record)
        case ["runner", "died"]:
            died = state == "NODE_FAIL" and str(record and record["reason"]).startswith("the step runner died")
            return died and status == 1 and (gone or work.ended == 1)
        case ["told", "to", "stop"]:
            told = state == "CANCELLED" and "told to stop" in str(record and record["reason"])
            return told and (gone or work.ended == status)
        case ["cancelled"]:
            return gone and _was_left(record)
        case ["never"]:
            return gone and record is None and not work.ran
        case ["waited"]:
            told = "cancelled while it waited" in work.err
            return told and work.ended == 128 + SIGNALS["TERM"] and record is None and not work.ran
        case ["failed"]:
            # The tasks of a step whose streams are copied no more are ended.
            if state == "FAILED" and str(record and record["reason"]).startswith("a process that copies its streams"):
                return status != 0 and (gone or work.ended == status)
            return state in ("FAILED", "NODE_FAIL") and status == 1 and (gone or work.ended == 1)
        case ["signal", number]:
            return (state, status) == ("FAILED", 128 + int(number)) and (gone or work.ended == status)
    return False


def _told(work: Work) -> bool:
    """Output and hooks are as they must be; what a hook of a runner in want could not write says nothing."""
    in_want = any(target in ("stepd", "forkserver") and how in SCARCE for target, how in work.suffered)
    return sorted(work.out.splitlines()) == sorted(work.lines) and (in_want or work.hooks_are_whole)


def _no_step(record: Record) -> bool:
    if record is None:
        return True
    return record["state"] in _REFUSED and record["exit_status"] != 0 and not _was_left(record)


def _was_left(record: Record) -> bool:
    """A step that had begun when its client was no more: a client that lives had its session, or it was told."""
    left = record is not None and record["state"] == "CANCELLED"
    return left and "the client that ran it went away" in str(record and record["reason"])
