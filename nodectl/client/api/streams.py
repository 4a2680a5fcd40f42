"""A step's standard streams, as in subprocess.

A stream is None (this process's own), PIPE, DEVNULL, STDOUT (for stderr), a descriptor or a file; or the name of a
file, which the step opens as its user, with patterns such as %t for the task.
"""

import os
from subprocess import DEVNULL, PIPE, STDOUT
from typing import IO, Any

__all__ = ["DEVNULL", "PIPE", "STDOUT", "Stream", "Streams"]

Stream = None | int | str | os.PathLike[str] | IO[Any]
_NAMES = ("stdin", "stdout", "stderr")


class Streams:
    """Three descriptors for Launch, the request's fields for the streams, and this process's ends of pipes.

    An end is None where there is no pipe. `let_go` closes the descriptors that the step has by then; `close` closes the
    ends, too. As a context manager, an exception closes all.
    """

    def __init__(self, stdin: Stream, stdout: Stream, stderr: Stream, *, ntasks: int) -> None:
        self.request: dict[str, object] = {}
        self.ends: list[int | None] = [None, None, None]
        self.fds: list[int] = []
        self._opened: list[int] = []
        try:
            for number, stream in enumerate((stdin, stdout, stderr)):
                self.fds.append(self._of(number, stream))
        except BaseException:
            self.close()
            raise
        if stdin == DEVNULL and ntasks != 1:
            self.request["stdin"] = "none"  # else a process would have to copy an empty stream to all tasks

    def __enter__(self) -> "Streams":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.close()
        self.let_go()

    def _of(self, number: int, stream: Stream) -> int:
        if stream == STDOUT and isinstance(stream, int):
            if number != 2:
                raise ValueError("STDOUT is for stderr only")
            if "stdout" in self.request:
                self.request["stderr"] = self.request["stdout"]
            return self.fds[1]
        if stream == PIPE and isinstance(stream, int):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            theirs, self.ends[number] = (reader, writer) if number == 0 else (writer, reader)
            self._opened.append(theirs)
            return theirs
        if isinstance(stream, str | os.PathLike):
            self.request[_NAMES[number]] = os.fsdecode(stream)
            return self._null()
        if stream == DEVNULL and isinstance(stream, int):
            return self._null()
        return self._own(number) if stream is None else self._descriptor(stream)

    def _descriptor(self, stream: int | IO[Any]) -> int:
        fd = stream if isinstance(stream, int) else stream.fileno()
        os.fstat(fd)  # OSError here rather than a puzzle later
        return fd

    def _own(self, number: int) -> int:
        try:
            os.fstat(number)
        except OSError:
            return self._null()  # this process has been left without
        return number

    def _null(self) -> int:
        fd = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._opened.append(fd)
        return fd

    def let_go(self) -> None:
        """Close this process's copies of the descriptors now owned by the step."""
        while self._opened:
            os.close(self._opened.pop())

    def close(self) -> None:
        """Close all descriptors, because there is no step."""
        self.let_go()
        for number, end in enumerate(self.ends):
            if end is not None:
                os.close(end)
                self.ends[number] = None
