"""What nodectl and its plugins say to the person who runs a step.

Every process installs where its lines go (`listen`): the client prints them, the stepd sends them to the client, a
task hands them to its stepd. Nothing here writes into a descriptor of the user's on root's behalf. Levels and names
are Slurm's.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN, ERROR, INFO, VERBOSE, DEBUG, DEBUG2, DEBUG3 = range(7)
_WORDS = {ERROR: "error: ", INFO: "", VERBOSE: "", DEBUG: "debug: ", DEBUG2: "debug2: ", DEBUG3: "debug3: "}


class _Outlet:
    write: "Callable[[str], None] | None" = None
    level = ERROR


_outlet = _Outlet()


def listen(write: "Callable[[str], None]", *, level: int = ERROR) -> None:
    """From now on this process's lines up to `level` go to `write`, one call a line, without line end."""
    _outlet.write = write
    _outlet.level = level


def say(level: int, text: str) -> None:
    """One message. PLAIN always passes and has no prefix; others are `nodectl: error: ...` and so on."""
    if _outlet.write is None or level > _outlet.level:
        return
    for line in text.splitlines() or [""]:
        _outlet.write(line if level == PLAIN else f"nodectl: {_WORDS[level]}{line}")


def error(text: str) -> None:
    """Something failed: what was tried, on what, for whom."""
    say(ERROR, text)


def info(text: str) -> None:
    """Worth knowing."""
    say(INFO, text)


def verbose(text: str) -> None:
    """Worth knowing for who asked with -v."""
    say(VERBOSE, text)


def debug(text: str) -> None:
    """For who looks for a fault, with -vv."""
    say(DEBUG, text)


def debug2(text: str) -> None:
    """More of it, with -vvv."""
    say(DEBUG2, text)


def debug3(text: str) -> None:
    """All of it, with -vvvv."""
    say(DEBUG3, text)
