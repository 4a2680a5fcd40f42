"""The commands sent by a client of a bulk step. Pure; believes nothing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nodectl.kernel.operations import Operation

LONGEST_MESSAGE = 1 << 20  # bytes of JSON: an argument may have 128 KiB, of which each byte may take six here
_MOST_NUMBER = 2**32 - 1  # SLURM_PROCID is that wide
_MOST_WORDS = 65_536
_LONGEST_PATH = 4096
_LONGEST_MARK = 64
_LONGEST_TIMEOUT = 366 * 86_400
_OF_WORD = 16  # bytes that a word counts beside its own
_NAMES = frozenset(("seq", "argv", "stdin", "stdout", "stderr", "timeout", "slot_mark"))

CLIENT, NOTHING = "-", "none"


class BadCommand(ValueError):
    """A malformed command; str() says why."""


class BulkCommand:
    """A command of a bulk step. Streams are absolute paths, CLIENT or NOTHING. `size`: bytes counted in the window.

    `operations` are its part of a launch, once the step has made it.
    """

    __slots__ = ("argv", "operations", "seq", "size", "slot_mark", "stderr", "stdin", "stdout", "timeout")

    def __init__(self, given: "Mapping[str, object]") -> None:
        """Check the command given by the client. Raises BadCommand."""
        for name in given:
            if name not in _NAMES:
                raise BadCommand(f"{name[:64]}: no such member of a command")
        seq, argv, timeout = given.get("seq"), given.get("argv"), given.get("timeout")
        if type(seq) is not int or not 0 <= seq <= _MOST_NUMBER:
            raise BadCommand(f"seq: not a whole number from 0 to {_MOST_NUMBER}")
        self.seq: int = seq
        if type(argv) is not list or not 0 < len(argv) <= _MOST_WORDS:
            raise BadCommand(f"argv of {seq}: not a list of 1 to {_MOST_WORDS} words")
        self.operations: list[Operation] | None = None
        self.size = sum(_size(word, seq) for word in argv)
        if not argv[0]:
            raise BadCommand(f"argv of {seq}: no program given")
        self.argv: list[str] = argv
        self.stdin = self._path(given, "stdin", NOTHING)
        self.stdout = self._path(given, "stdout", CLIENT)
        self.stderr = self._path(given, "stderr", CLIENT)
        if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout <= _LONGEST_TIMEOUT):  # type: ignore[operator]
            raise BadCommand(f"timeout of {seq}: not a number of seconds up to {_LONGEST_TIMEOUT}")
        self.timeout: float | None = timeout  # type: ignore[assignment]  # looked at above
        mark = given.get("slot_mark") or ""
        if type(mark) is not str or len(mark) > _LONGEST_MARK:
            raise BadCommand(f"slot_mark of {seq}: not a text of at most {_LONGEST_MARK} characters")
        self.slot_mark: str = mark

    def _path(self, given: "Mapping[str, object]", name: str, default: str) -> str:
        path = given.get(name)
        if path is None:
            return default
        self.size += _size(path, self.seq)
        text = str(path)
        if text not in (CLIENT, NOTHING) and (not text.startswith("/") or len(text) > _LONGEST_PATH):
            raise BadCommand(f"{name} of {self.seq}: not an absolute path of at most {_LONGEST_PATH} characters")
        return text

    def in_slot(self, text: str, slot: int) -> str:
        """Return the text with the slot's number, counted from 1, in place of the mark."""
        return text.replace(self.slot_mark, str(slot + 1)) if self.slot_mark else text

    def words(self, slot: int) -> list[str]:
        """Return the words to be executed in the slot."""
        if not self.slot_mark:
            return self.argv
        return [self.in_slot(word, slot) for word in self.argv]


def _size(word: object, seq: int) -> int:
    """Return the size of a word in the window, in bytes. Raises BadCommand."""
    if type(word) is not str or "\0" in word:
        raise BadCommand(f"a word of {seq}: not a string, or with a NUL byte in it")
    try:
        return len(word.encode("utf-8", "surrogateescape")) + _OF_WORD
    except UnicodeEncodeError:
        raise BadCommand(f"a word of {seq}: holds a character that is no byte and no Unicode") from None


def commands_in(value: "Sequence[object]") -> list[BulkCommand]:
    """Return the commands of a message. Raises BadCommand."""
    found = []
    for one in value:
        if type(one) is not dict:
            raise BadCommand("commands: not objects")
        found.append(BulkCommand(one))
    return found
