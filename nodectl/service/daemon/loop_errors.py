"""The event loop's exception handler: logs an exception which no call waits for, and lets the loop go on.

asyncio's own handler imports modules and reads source files first. Where the daemon has no descriptor left, that fails
too, and its exception ends the event loop. Nothing is imported or opened here.
"""

import asyncio
from collections.abc import Iterator, Mapping
from types import TracebackType

from nodectl import messages

_MOST_FRAMES = 30


def tell(loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
    """Log an exception; a handler for `loop.set_exception_handler`."""
    for line in _lines(context):
        messages.tell("internal-error", line)


def _lines(context: Mapping[str, object]) -> Iterator[str]:
    yield str(context.get("message", "an error in the event loop"))
    error = context.get("exception")
    if not isinstance(error, BaseException):
        return
    yield "Traceback (most recent call last):"
    yield from where(error.__traceback__)
    yield described(error)


def where(trace: TracebackType | None) -> Iterator[str]:
    """Yield the calls which led to an exception, a line each, the innermost last."""
    for _ in range(_MOST_FRAMES):
        if trace is None:
            return
        code = trace.tb_frame.f_code
        yield f"  {code.co_filename}, line {trace.tb_lineno}, in {code.co_name}"
        trace = trace.tb_next


def described(error: BaseException) -> str:
    """Return the type and the text of the exception in a line."""
    return f"{type(error).__name__}: {error}"


def in_one_line(error: OSError) -> str:
    """Return the error's text and the place of the failed call."""
    *_, place = ("", *where(error.__traceback__))
    return f"{error}: {place.strip()}"
