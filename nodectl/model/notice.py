"""The events of which people are told, and the options --mail-type and --mail-user. Values, in every process.

The daemon checks what a client has checked before: an address becomes an argument of sendmail.
"""

BEGIN, END, FAIL, REQUEUE, TIME_LIMIT, IDLE = "BEGIN", "END", "FAIL", "REQUEUE", "TIME_LIMIT", "IDLE"
SHARES_OF_LIMIT = {"TIME_LIMIT_50": 50, "TIME_LIMIT_80": 80, "TIME_LIMIT_90": 90}  # percent of the time limit
ARRAY_TASKS = "ARRAY_TASKS"
EVENTS = (BEGIN, END, FAIL, REQUEUE, IDLE, TIME_LIMIT, *SHARES_OF_LIMIT)
OF_COMMAND = frozenset({BEGIN, END, FAIL, REQUEUE, IDLE, "TIME_LIMIT_80"})
"""The events for which --notify runs."""
_NONE, _ALL = "NONE", (BEGIN, END, FAIL, REQUEUE, IDLE)
_NEVER_HERE = ("INVALID_DEPEND", "STAGE_OUT")  # sbatch's, without an event of this service
_MOST_ADDRESSES = 8
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_IN_NAME, _IN_HOST = _LETTERS | frozenset("._+=%-"), _LETTERS | frozenset(".-")
_LONGEST_NAME, _LONGEST_HOST = 64, 253


def mail_types(text: str) -> tuple[str, ...]:
    """Return the events of --mail-type, ARRAY_TASKS among them, () for NONE. Raises ValueError."""
    found: dict[str, None] = {}
    for word in text.upper().split(","):
        if word == "ALL":
            found |= dict.fromkeys(_ALL)
        elif word in (*EVENTS, ARRAY_TASKS):
            found[word] = None
        elif word not in (_NONE, *_NEVER_HERE):
            raise ValueError(f"Invalid event {word[:20]!r}: {', '.join((*EVENTS, ARRAY_TASKS))}, ALL or NONE")
    if _NONE in text.upper().split(","):
        return ()
    return tuple(found)


def addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of --mail-user, or names of local users. Raises ValueError for anything else.

    None of them begins with '-' or holds a character that a shell, a header or sendmail(8) gives a meaning.
    """
    found = tuple(text.split(","))
    for one in found:
        if not is_address(one):
            raise ValueError(f"Invalid address {one[:40]!r}: a user's name, or name@host, with ',' between several")
    if len(found) > _MOST_ADDRESSES:
        raise ValueError(f"{len(found)} addresses: {_MOST_ADDRESSES} at most")
    return found


def is_address(text: str) -> bool:
    """Return True for a user's name, or name@host."""
    name, at, host = text.partition("@")
    is_name = 0 < len(name) <= _LONGEST_NAME and name[0] not in ".-" and _IN_NAME.issuperset(name)
    if not at:
        return is_name
    return (
        is_name and 0 < len(host) <= _LONGEST_HOST and not {host[0], host[-1]} - _LETTERS and _IN_HOST.issuperset(host)
    )
