"""Detection of a program's MPI library, and choice of the MPI plugin, from the program's own file."""

import _stat as stat
import posix as os

from nodectl.client.command import environ

_HEADER = 64
_MOST = 1 << 16  # bytes of program headers and of the dynamic section
_LONGEST_NAME = 64
_LOAD, _DYNAMIC = 1, 2  # PT_*
_NEEDED, _STRINGS = 1, 5  # DT_*
_OF_MPICH, _OF_OPEN_MPI = "pmi2", "pmix"


def look(request: "dict[str, object]") -> None:
    """Add the MPI plugin to a request for several tasks, where known here."""
    if request.get("mpi", "none") == "none":
        argv: list[str] = request["argv"]  # type: ignore[assignment]  # make_request's
        if linked := plugin_for(argv[0], str(request["cwd"])):
            request["mpi_linked"] = linked


def types(path: "str | None") -> str:
    """Return the text of --mpi=list, by the configuration at `path`."""
    from nodectl.client.configuration import configured  # only for this

    names = [plugin.removeprefix("mpi/") for plugin in configured(path).mpi_plugin]
    return "\n\t".join(["MPI plugin types are...", *names])


def plugin_for(word: str, cwd: str) -> str:
    """Return the name of the MPI plugin for this program, "" for none or unknown."""
    try:
        fd = _opened(word, cwd)
    except OSError:
        return ""
    if fd < 0:
        return ""
    try:
        return next(filter(None, map(_of_library, _needed(fd))), "")
    except (OSError, ValueError, IndexError, OverflowError):
        return ""  # it is told when it is executed
    finally:
        os.close(fd)


def _opened(word: str, cwd: str) -> int:
    """Return a descriptor of the program's file, -1 where no executable file is found."""
    candidates = [word] if "/" in word else [f"{d or '.'}/{word}" for d in environ().get("PATH", "").split(":")]
    for path in candidates:
        full = path if path.startswith("/") else f"{cwd}/{path}"
        try:
            status = os.stat(full)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o111:
            return os.open(full, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    return -1


def _number(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _needed(fd: int) -> "list[str]":
    """Return the libraries to which the program is linked, from a 64-bit little-endian elf(5) file."""
    header = os.pread(fd, _HEADER, 0)
    if header[:6] != b"\x7fELF\2\1":
        return []
    start, size, count = _number(header, 32), _number(header, 54, 2), _number(header, 56, 2)
    if size < 56:
        return []
    table = os.pread(fd, min(size * count, _MOST), start)
    rows = [table[at : at + size] for at in range(0, len(table) - size + 1, size)]
    dynamic = next((row for row in rows if _number(row, 0, 4) == _DYNAMIC), None)
    if dynamic is None:
        return []
    data = os.pread(fd, min(_number(dynamic, 32), _MOST), _number(dynamic, 8))
    entries = [(_number(data, at), _number(data, at + 8)) for at in range(0, len(data) - 15, 16)]
    address = next((value for tag, value in entries if tag == _STRINGS), 0)
    for row in rows:
        place = address - _number(row, 16)
        if _number(row, 0, 4) == _LOAD and 0 <= place < _number(row, 32):
            strings = place + _number(row, 8)
            names = [os.pread(fd, _LONGEST_NAME, strings + value) for tag, value in entries if tag == _NEEDED]
            return [name.partition(b"\0")[0].decode("ascii", "replace") for name in names]
    return []


def _of_library(name: str) -> str:
    """Return the MPI plugin of a library, or "".

    Libraries with MPICH's interface are libmpi.so.12, by any maker; Open MPI's have higher numbers.
    """
    stem, _, version = name.partition(".so.")
    if stem.startswith(("libmpich", "libfmpich")) or (stem.startswith("libmpi") and version.split(".")[0] == "12"):
        return _OF_MPICH
    if stem in ("libmpi", "libmpi_cxx", "libmpi_mpifh", "libmpi_usempi") and version:
        return _OF_OPEN_MPI
    return ""
