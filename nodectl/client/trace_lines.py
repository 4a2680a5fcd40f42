"""Reading of a step's trace from the service, page by page."""

from typing import TYPE_CHECKING

from nodectl.client.command import complain
from nodectl.model.wire import lean_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from nodectl.client.session import Session


def of_step(session: "Session", job: int, step: int) -> "Iterator[Mapping[str, Any]]":
    """Yield the lines of the trace. Raises Failed."""
    more: dict[str, Any] = {}
    while True:
        reply: Mapping[str, Any] = session.call("Trace", job=job, step=step, **more)
        yield from reply["trace"]
        if not reply.get("next"):
            return
        more = {"begin": reply["next"]}


def write(session: "Session", path: str, job: int, step: int) -> None:
    """Write the trace of an ended step, for --trace: a JSON object a line, as in the flight recorder. Raises Failed."""
    session.call("Wait", job=job, step=step, epilog=True)
    lines = list(of_step(session, job, step))
    try:
        with open(path, "w", encoding="ascii") as file:
            for line in lines:
                file.write(lean_json.dumps(line) + "\n")
    except OSError as error:
        complain(f"write the trace to {path!r}: {error.strerror}")
