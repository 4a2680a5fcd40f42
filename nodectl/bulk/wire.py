"""Commands encoded for the step: messages of org.nodectl.step, each with as many as fit."""

from typing import TYPE_CHECKING

from nodectl.client.command import Failed
from nodectl.model.wire import lean_json
from nodectl.model.wire.names import STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from nodectl.bulk.commands import Command

_BEGIN = f'{{"method":"{STEP}.Run","parameters":{{"commands":['.encode()
_OTHERS, _END = b'],"others":', b'},"oneway":true}\0'
_LARGE = 48 << 10  # bytes, about; what fits into a pipe at once
_LARGEST = (1 << 20) - 1024  # bytes; a message has some around it
_WORD = 16  # by which a word weighs more than its bytes
_WIDEST = 4  # bytes of a letter


def weight(command: "Command", argv: "Sequence[str]") -> int:
    """Return the command's weight in the step's window, not less than the step's own count."""
    letters = sum(map(len, argv))
    if not all(map(str.isascii, argv)):
        letters *= _WIDEST
    paths = len(command.stdout) + len(command.stderr)
    if not (command.stdout.isascii() and command.stderr.isascii()):
        paths *= _WIDEST
    return letters + _WORD * len(argv) + paths


def encoded(command: "Command", argv: "Sequence[str]", timeout: float, slot_mark: str) -> bytes:
    """Encode a command. Raises Failed.

    `timeout`: 0 for none. `slot_mark`: the mark of the slot's number, empty for none.
    """
    fields: dict[str, object] = {
        "seq": command.number, "argv": argv, "stdout": command.stdout, "stderr": command.stderr,
    }  # fmt: skip
    if timeout:
        fields["timeout"] = timeout
    if slot_mark:
        fields["slot_mark"] = slot_mark
    data = lean_json.dumps(fields).encode("ascii")
    if len(data) > _LARGEST:
        raise Failed(f"command {command.number} is longer than a step takes", 255)
    return data


def messages(commands: "Iterable[bytes]", others: "Callable[[], Mapping[str, int]]") -> "Iterator[bytes]":
    """Yield whole messages of encoded commands. `others` counts the commands that the step does not have."""

    def message() -> bytes:
        return b"".join((_BEGIN, b",".join(batch), _OTHERS, lean_json.dumps(others()).encode("ascii"), _END))

    batch: list[bytes] = []
    size = 0
    for one in commands:
        batch.append(one)
        size += len(one)
        if size > _LARGE:
            yield message()
            batch, size = [], 0
    if batch:
        yield message()
