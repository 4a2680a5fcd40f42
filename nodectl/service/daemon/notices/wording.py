"""A notice in words: a subject, a text, a mail, variables of a command. Functions of values, in the courier.

Names come from users. A subject and each line of a text are printable, so that no name adds a line or a header.
"""

import email.message
import email.policy
import email.utils
from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.model import notice
from nodectl.model.words import duration, moment, printable
from nodectl.service.daemon.history.notice import Notice

_WORDS = {
    notice.BEGIN: "has begun",
    notice.END: "has ended",
    notice.FAIL: "has failed",
    notice.REQUEUE: "waits again",
    notice.IDLE: "does nothing",
    notice.TIME_LIMIT: "has reached its time limit",
    **{event: f"has used {percent} % of its time limit" for event, percent in notice.SHARES_OF_LIMIT.items()},
}
_OF_END = (notice.END, notice.FAIL, notice.TIME_LIMIT)


def identity(told: Notice) -> str:
    """Return the identity of a notice, by which a second delivery shows: 7.0.END, with the time of the submission."""
    spell = f".{told.record['spell']}" if "spell" in told.record else ""
    return f"{told.job}.{told.restart}.{told.event}{spell}.{int(told.record['submit'])}"


def subject(told: Notice) -> str:
    """Return the notice as a line."""
    record = told.record
    what = "array" if _is_whole(told) else "job"
    ending = ""
    if told.event in _OF_END:
        ending = f": {_ends(record['ends'])}" if _is_whole(told) else f": {record['state']}"
    return printable(f"{what} {record['id']} ({record['name']}) {_WORDS[told.event]}{ending}")


def text(told: Notice, node: str) -> str:
    """Return the notice as lines."""
    record = told.record
    facts: dict[str, object] = {"job": f"{record['id']} {record['name']}", "user": record["user"], "node": node}
    if told.event in _OF_END:
        facts["state"] = _ends(record["ends"]) if _is_whole(told) else record["state"]
        facts["exit status"] = None if _is_whole(told) else record["exit_code"]
    facts |= {
        "reason": record["reason"],
        "submitted": moment(record["submit"], ""),
        "started": moment(record["start"], ""),
        "time limit": duration(record["time_limit"]) if record["time_limit"] else "",
        "directory": record["work_dir"],
        "told": moment(record["at"], ""),
    }
    lines = [f"{name + ':':14}{printable(str(value))}" for name, value in facts.items() if value not in (None, "")]
    if record.get("has_log"):
        lines += ["", f"Its output: nodectl log {record['id']}"]
    return "\n".join([f"{subject(told)}.", "", *lines, "", f"More: nodectl acct --jobs={record['id']}", ""])


def mail(told: Notice, to: Sequence[str], node: str) -> bytes:
    """Return the notice as a mail for sendmail(8), which adds the sender."""
    made = email.message.EmailMessage(policy=email.policy.SMTP.clone(linesep="\n"))
    made["To"] = ", ".join(to)
    # A name that reads as an encoded word would be decoded, to lines of its own or to bytes that are no text.
    made["Subject"] = subject(told).encode("utf-8", "replace").decode("utf-8").replace("=?", "= ?")
    made["Date"] = email.utils.formatdate(told.record["at"], localtime=True)
    made["Message-ID"] = f"<{identity(told)}.nodectl@{node}>"
    made["Auto-Submitted"] = "auto-generated"
    made["X-Nodectl-Job"] = str(told.record["id"])
    made["X-Nodectl-Event"] = told.event
    made.set_content(text(told, node).encode("utf-8", "replace").decode("utf-8"))
    return made.as_bytes()


def variables(told: Notice, node: str) -> dict[str, str]:
    """Return the variables of a command: those of Slurm's MailProg, and ours."""
    record = told.record
    found = {
        "NODECTL_EVENT": told.event,
        "NODECTL_EVENT_ID": identity(told),
        "NODECTL_EVENT_TEXT": subject(told),
        "SLURM_JOB_ID": str(told.job),
        "SLURM_JOB_NAME": record["name"],
        "SLURM_JOB_USER": record["user"],
        "SLURM_JOB_MAIL_TYPE": told.event,
        "SLURM_JOB_STATE": record["state"],
        "SLURM_JOB_WORK_DIR": record["work_dir"],
        "SLURM_JOB_EXIT_CODE": str(record["exit_code"]),
        "SLURMD_NODENAME": node,
    }
    array, _, task = str(record["id"]).partition("_")
    if record["array"]:
        found |= {"SLURM_ARRAY_JOB_ID": array}
    if task:
        found |= {"SLURM_ARRAY_TASK_ID": task}
    return {name: value.replace("\0", "") for name, value in found.items()}


def _is_whole(told: Notice) -> bool:
    return "ends" in told.record


def _ends(states: Mapping[str, Any]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none has ended"
