"""States in colour. Pure.

Green runs, yellow waits, cyan is suspended, blue ends, red has failed, magenta was cancelled or preempted.
"""

_RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN = range(31, 37)
_PLAIN = "\x1b[0m"
# States that are missing here, or have 0, have no colour.
_COLOURS = {
    "COMPLETING": _BLUE, "COMPLETED": 0, "CG": _BLUE, "RUNNING": _GREEN, "R": _GREEN, "PENDING": _YELLOW, "PD": _YELLOW,
    "STARTING": _YELLOW, "REQUEUED": _YELLOW, "SUSPENDED": _CYAN, "S": _CYAN, "CANCELLED": _MAGENTA,
    "PREEMPTED": _MAGENTA, "FAILED": _RED, "TIMEOUT": _RED, "OUT_OF_MEMORY": _RED, "NODE_FAIL": _RED,
    "BOOT_FAIL": _RED, "DEADLINE": _RED,
    # Of the machine.
    "IDLE": _GREEN, "MIXED": _GREEN, "ALLOCATED": _GREEN, "DRAIN": _RED, "DRAINED": _RED, "DRAINING": _RED,
    "DOWN": _RED, "FAIL": _RED, "RESERVED": _CYAN, "MAINT": _CYAN,
    # Of a reservation.
    "ACTIVE": _GREEN, "INACTIVE": 0,
}  # fmt: skip


def painted(cell: str) -> str:
    """Return a state in colour. Of several, as in IDLE+DRAIN, the last counts."""
    words = cell.strip().upper().split("+")[-1].split()
    colour = _COLOURS.get(words[0], 0) if words else 0
    return f"\x1b[{colour}m{cell}{_PLAIN}" if colour else cell
