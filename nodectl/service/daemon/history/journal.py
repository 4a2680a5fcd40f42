"""A line in the daemon's log for each ended step. Later steps do not push the line out, as happens in the history.

Names come from users, so they are written as JSON: one line, ASCII.
"""

from collections.abc import Mapping

from nodectl import messages
from nodectl.model.step_number import step_name
from nodectl.model.wire.lean_json import dumps, quoted

_TOLD = ("uid", "user", "name", "state", "exit_status", "ntasks", "submitted", "started", "ended")
_LONGEST = 64


def tell(record: Mapping[str, object]) -> None:
    """Write the line of an ended step. If the log cannot be written, nothing else fails."""
    facts = {name: record.get(name) for name in _TOLD}
    facts["name"] = str(facts["name"])[:_LONGEST]
    words = " ".join(f"{name}={_word(value)}" for name, value in facts.items())
    step = step_name(record["job"], record["step"])
    messages.tell("step-ended", f"ended step={step} {words}", job=record["job"], step=step, uid=record.get("uid"))


def _word(value: object) -> str:
    if type(value) is str:
        return quoted(value)
    return str(value) if type(value) in (int, float) else dumps(value)
