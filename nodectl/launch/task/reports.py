"""The reports of tasks before their programs run: JSON objects in a pipe, a NUL after each."""

import os

from nodectl.model.wire import lean_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LIMIT = 1 << 20


class Reports:
    """The stepd's end of the pipe; reading does not block."""

    __slots__ = ("_data", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._data = b""

    def read(self) -> "list[Mapping[str, object]]":
        """Return the complete reports received since the last call."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            self._data += data
        whole, _, self._data = self._data.rpartition(b"\0")
        found = []
        for text in whole.split(b"\0") if whole else []:
            try:
                found.append(lean_json.load_object(text))
            except lean_json.BadJson:
                continue  # a plugin's child has written into the pipe
        if len(self._data) > _LIMIT:
            self._data = b""
        return found
