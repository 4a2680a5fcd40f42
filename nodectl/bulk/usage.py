"""Each command's resource usage: a JSON object, as the file `usage` beside the output and as a line of a common log."""

from typing import TYPE_CHECKING

from nodectl.bulk.line_file import LineFile
from nodectl.model.wire import lean_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar

    from nodectl.bulk.commands import Command
    from nodectl.bulk.tally import Ending


class UsageLog(LineFile):
    """The log of --usage-log."""

    __slots__ = ()
    KIND: "ClassVar[str]" = "usage log"
    BEGIN: "ClassVar[bytes]" = b'{"seq":'


def line_of(command: "Command", event: "Mapping[str, Any]", ending: "Ending") -> bytes:
    """Return the line of a command. Names and units are the step record's; the end is written as in the joblog."""
    told = {
        "seq": command.number,
        "slot": event["slot"] + 1,
        "started": event["started"],
        "seconds": event["seconds"],
        "exit_value": ending.exit_value,
        "signal": ending.signal,
        "user_seconds": event["user"],
        "system_seconds": event["system"],
        "memory_kib": event["memory"],
        "read_chars": event["read"],
        "written_chars": event["written"],
        "command": command.line,
    }
    return lean_json.dumps(told).encode("ascii") + b"\n"
