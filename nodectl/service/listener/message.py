"""Checks by the session process of a message for the daemon: a valid call, of bounded cost for the length."""

from nodectl.model.wire import framing
from nodectl.model.wire.names import NODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LONGEST_OF_OTHERS = 256 << 10  # bytes of a call
_MOST_VALUES = 100_000  # in a call: two full lists of a launch, and room. More would take too long to read
LAUNCH = f"{NODE}.Launch"
_LONG = (LAUNCH, f"{NODE}.Submit")  # with an environment, with a script
_WITHDRAW = f"{NODE}.Withdraw"
_LONGEST_WITHDRAWAL = 256  # bytes


def checked(text: bytes) -> "Mapping[str, object]":
    """Return the decoded call. Raises BrokenWire for a malformed call, and for too many bytes or values."""
    message = framing.decode_call(text)
    if len(text) > LONGEST_OF_OTHERS and message.get("method") not in _LONG:
        raise framing.BrokenWire(f"message longer than {LONGEST_OF_OTHERS} bytes")
    # In strings these letters are no values. Counting letters is cheap, walking through the values is not.
    if text.count(b",") + text.count(b"[") + text.count(b"{") > _MOST_VALUES and _values(message) > _MOST_VALUES:
        raise framing.BrokenWire(f"message of more than {_MOST_VALUES} values")
    return message


def withdraws(calls: "Iterable[tuple[bytes, object]]") -> bool:
    """Return True if any of the calls withdraws the launch under way. Raises BrokenWire."""
    short = (text for text, _ in calls if len(text) <= _LONGEST_WITHDRAWAL)
    return any(framing.decode_call(text).get("method") == _WITHDRAW for text in short)


def _values(message: object) -> int:
    count, waiting = 0, [message]
    while waiting:
        value = waiting.pop()
        count += 1
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return count
