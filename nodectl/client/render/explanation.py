"""The explanation why a job waits, as lines for the terminal. Pure."""

import textwrap
from typing import Any

from nodectl.client.render.table import pairs
from nodectl.model.states import PENDING
from nodectl.model.words import moment, printable


def explained(job: str, answer: dict[str, Any], width: int | None) -> list[str]:
    """Return the explanation as lines for the terminal."""
    rows: list[tuple[str, object]] = [("job", job)]
    if answer.get("reason"):
        rows.append(("reason", answer["reason"]))
    if answer.get("start") or answer.get("state", PENDING) == PENDING:
        rows.append(("starts", moment(answer.get("start"), "not known")))
    if answer.get("for"):
        rows.append(("waits for", ", ".join(map(str, answer["for"]))))
    lines = pairs(rows)
    for text in (answer.get("words"), *(answer.get("help") or ())):
        if text:
            wrapped = textwrap.wrap(str(text), min(width or 80, 100), break_long_words=False)
            lines += ["", *map(printable, wrapped)]
    return lines
