"""Frames between a session process and the daemon: a connection's number, a word and a text, ended by NUL.

From the session process, through a pipe, which can carry no descriptor:

    N call K TEXT    a call, with K descriptors that the session process keeps
    N gone           the client has closed the connection; a call under way goes on
    N withdraw       the client withdraws the launch under way

From the daemon, through a socket that it never reads:

    N reply TEXT     the reply to the call, empty where none was asked for; the next call may follow
    N hand TEXT      comes with descriptors. The first is a socket into which the session process puts the call's
                     descriptors; for a launch, it does so at the reply. The other descriptors are the client's, and
                     go with the reply. TEXT is the reply if the daemon ends before it gives one
    N withdrawn      the launch has not begun, and the session process tells the client so; `reply` still comes later.
                     For a launch that has begun, `reply` is on the way already
"""

CALL, GONE, WITHDRAW = b"call", b"gone", b"withdraw"
REPLY, HAND, WITHDRAWN = b"reply", b"hand", b"withdrawn"
LONGEST_HEAD = 64

# The step runner's answer: the step has begun.
BEGUN = b"b"


class BrokenFrame(Exception):
    """Raised when the peer breaks the protocol of frames."""


def frame(number: int, word: bytes, text: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    return b"%d %s %s\0" % (number, word, text)


def split(data: bytes) -> tuple[int, bytes, bytes]:
    """Return a frame's number, word and text. Raises BrokenFrame."""
    head, _, rest = data.partition(b" ")
    word, _, text = rest.partition(b" ")
    if not head.isdigit() or len(head) > LONGEST_HEAD:
        raise BrokenFrame(f"no number: {head[:LONGEST_HEAD]!r}")
    return int(head), word, text
