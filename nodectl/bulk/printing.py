"""Copying of files to stdout or stderr, in pieces. A file may be larger than memory."""

import os

from nodectl.client.command import Failed, complain
from nodectl.messages import printable

_CHUNK = 1 << 18
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def end_of_lines(name: str, directory: int | None, begin: int, end: int) -> int:
    """Return the position after the last newline between two positions of a file; 0 where there is none."""
    try:
        fd = os.open(name, _OPEN, dir_fd=directory)
    except OSError:
        return 0  # said at its end
    try:
        while end > begin:
            at = max(begin, end - _CHUNK)
            if found := os.pread(fd, end - at, at).rfind(b"\n") + 1:
                return at + found
            end = at
    except OSError:
        return 0
    finally:
        os.close(fd)
    return 0


def print_part(to: int, name: str, directory: int | None, tag: bytes, begin: int, end: int) -> None:
    """Print a part of a file between two positions.

    The end is the file's size when its command ended: a process left behind may write endlessly.
    """
    try:
        fd = os.open(name, _OPEN, dir_fd=directory)
    except OSError as error:
        complain(f"read {printable(name)}: {error.strerror}")
        return
    begins = True  # a line
    try:
        while data := os.pread(fd, min(end - begin, _CHUNK), begin):
            begin += len(data)
            if not tag:
                write(to, data)
                continue
            ends = data.endswith(b"\n")
            text = (data[:-1] if ends else data).replace(b"\n", b"\n" + tag) + b"\n" * ends
            write(to, tag + text if begins else text)
            begins = ends
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failed(f"print the output of a command: {error.strerror}", 255) from None
    finally:
        os.close(fd)


def write(fd: int, data: bytes) -> None:
    """Write all the data. Raises Failed where writing fails, BrokenPipeError where the reader is gone."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # another process has set O_NONBLOCK
            wait_for_room(fd)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Failed(f"write to {'stdout' if fd == 1 else 'stderr'}: {error.strerror}", 255) from None


def wait_for_room(fd: int) -> None:
    """Wait until the descriptor can be written."""
    import select  # there already

    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll()
