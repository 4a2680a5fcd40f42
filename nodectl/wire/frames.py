"""What a desk and the daemon say to each other: frames of a connection's number, a word and a text, ended by NUL.

From the desk, through a pipe, which can carry no descriptor:

    N call K TEXT    a call, with K descriptors that the desk keeps
    N gone           the client has closed; what is under way for it goes on
    N withdraw       the client takes back the launch that is under way

From the daemon, through a socket that it never reads:

    N reply TEXT     the reply to the call, empty where none was asked for; the next call may follow
    N hand TEXT      comes with descriptors: the first is a socket into which the desk puts those of the call, of a
                     launch with its reply; the others are the client's, and go with the reply. TEXT is the reply should
                     the daemon end before it gives one
    N withdrawn      that launch had not begun, and the client is told so; `reply` comes some day all the same. Of one
                     that has begun `reply` is on the way already
"""

CALL, GONE, WITHDRAW = b"call", b"gone", b"withdraw"
REPLY, HAND, WITHDRAWN = b"reply", b"hand", b"withdrawn"
LONGEST_HEAD = 64

# The step runner's answer: it has begun.
BEGUN = b"b"


class BrokenFrame(Exception):
    """The other side does not speak as it should."""


def frame(number: int, word: bytes, text: bytes = b"") -> bytes:
    """The bytes of one."""
    return b"%d %s %s\0" % (number, word, text)


def split(data: bytes) -> tuple[int, bytes, bytes]:
    """Number, word and text. Raises BrokenFrame."""
    head, _, rest = data.partition(b" ")
    word, _, text = rest.partition(b" ")
    if not head.isdigit() or len(head) > LONGEST_HEAD:
        raise BrokenFrame(f"no number: {head[:LONGEST_HEAD]!r}")
    return int(head), word, text
