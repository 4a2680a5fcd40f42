"""What a desk asks of a message before the daemon gets it: that it is one, and costs no more than its length tells."""

from nodectl.wire import framing
from nodectl.wire.names import NODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LONGEST_OF_OTHERS = 256 << 10  # bytes of a call
_MOST_VALUES = 100_000  # in a call: two full lists of a launch, and room. To read more takes longer than a slice
LAUNCH = f"{NODE}.Launch"
_LONG = (LAUNCH, f"{NODE}.Submit")  # with an environment, with a script
_WITHDRAW = f"{NODE}.Withdraw"
_LONGEST_WITHDRAWAL = 256  # bytes


def checked(text: bytes) -> "Mapping[str, object]":
    """The message, if it is one that costs no more to take than its length tells. Raises BrokenWire."""
    message = framing.decode_call(text)
    if len(text) > LONGEST_OF_OTHERS and message.get("method") not in _LONG:
        raise framing.BrokenWire(f"message longer than {LONGEST_OF_OTHERS} bytes")
    # Within strings these letters are no values; to count them is cheap, to walk through the values is not.
    if text.count(b",") + text.count(b"[") + text.count(b"{") > _MOST_VALUES and _values(message) > _MOST_VALUES:
        raise framing.BrokenWire(f"message of more than {_MOST_VALUES} values")
    return message


def withdraws(calls: "Iterable[tuple[bytes, object]]") -> bool:
    """Whether one of these calls takes back the launch that is under way. Raises BrokenWire."""
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
