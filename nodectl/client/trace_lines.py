"""A step's trace from the service, in as many replies as it takes."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from nodectl.client.session import Session


def of_step(session: "Session", job: int, step: int) -> "Iterator[Mapping[str, Any]]":
    """Its lines. Raises Failed."""
    more: dict[str, Any] = {}
    while True:
        reply: Mapping[str, Any] = session.call("Trace", job=job, step=step, **more)
        yield from reply["trace"]
        if not reply.get("next"):
            return
        more = {"begin": reply["next"]}
