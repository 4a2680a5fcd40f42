"""A job's shares of the machine, asked for or limited, besides CPUs and memory: CPU time, I/O, processes, huge pages.

A set of shares is a mapping with a number for each: `cpu.weight`, `cpu.max` (percent of one CPU), `io.weight`, for each
device and figure `io.max 8:0 rbps`, `pids.max`, and for each size `hugetlb.2MB.max` (bytes); 0 or absent is the
kernel's default. So one set is compared with another number by number. Names and figures are cgroup v2's: kernel
cgroup-v2, "CPU", "IO", "PID" and "HugeTLB".

Runs in the daemon. Root looks a device up by a user's word: beneath /dev, in no other file system, and not by a link
that leads out of it.
"""

import errno
import os
import stat
from collections.abc import Iterable, Mapping

from nodectl.kernel import _namespace
from nodectl.model.config import Config
from nodectl.model.number import scaled, whole

CPU_MAX, CPU_WEIGHT, IO_WEIGHT, IO_MAX, PIDS_MAX = "cpu.max", "cpu.weight", "io.weight", "io.max", "pids.max"
_HUGE_PAGES = "hugetlb."

_PERIOD = 100_000  # microseconds, over which CPU time is counted
_OF_A_PERCENT = _PERIOD // 100
_FIGURES = ("rbps", "wbps", "riops", "wiops")
_LARGEST = 10**12 - 1
_MOST = (1 << 62) - 1
_BENEATH = _namespace.RESOLVE_BENEATH | _namespace.RESOLVE_NO_MAGICLINKS | _namespace.RESOLVE_NO_XDEV
_DEFAULT_WEIGHT = 100
_WEIGHTS = {"cpu_weight": CPU_WEIGHT, "io_weight": IO_WEIGHT}
_NUMBERS = {**_WEIGHTS, "cpu_max": CPU_MAX, "pids_max": PIDS_MAX}

Shares = Mapping[str, int]


class BadShare(ValueError):
    """The error of a senseless or excessive share; str() is the reason, `parameter` the parameter at fault."""

    def __init__(self, parameter: str, reason: str) -> None:
        super().__init__(reason)
        self.parameter = parameter


def configured(config: Config) -> dict[str, int]:
    """Return the default shares of every job, which no user may exceed. Raises BadShare."""
    shares = {name: getattr(config, key) for key, name in _WEIGHTS.items() if getattr(config, key) != _DEFAULT_WEIGHT}
    if config.cpu_max:
        shares[CPU_MAX] = config.cpu_max
    return shares | io_max(config.io_max) | hugetlb_max(config.hugetlb_max)


def asked(request: Mapping[str, object]) -> dict[str, int]:
    """Return the shares asked for in a request, by the names of `model/fields.py`, class Limits. Raises BadShare."""
    shares = {name: int(str(request[key])) for key, name in _NUMBERS.items() if key in request}
    lines: Mapping[str, Iterable[str]] = request  # type: ignore[assignment]  # its shape says so
    return shares | io_max(lines.get("io_max", ())) | hugetlb_max(lines.get("hugetlb_max", ()))


def parameter_of(name: str) -> str:
    """Return the parameter of a request for a share, or for the share's file."""
    return "hugetlb_max" if name.startswith(_HUGE_PAGES) else name.partition(" ")[0].replace(".", "_")


def beyond(shares: Shares, most: Shares) -> str:
    """Return the name of the first share greater than in `most`, "" for none."""
    return next((name for name in sorted({*shares, *most}) if _size(name, shares) > _size(name, most)), "")


def _size(name: str, shares: Shares) -> float:
    number = shares.get(name, 0)
    return number or (_DEFAULT_WEIGHT if name.endswith("weight") else float("inf"))


def said(name: str, shares: Shares) -> str:
    """Return a share in words."""
    number = int(size) if (size := _size(name, shares)) != float("inf") else 0
    return f"{name} = {number or 'max'}{'%' if number and name == CPU_MAX else ''}"


def files(shares: Shares, more: Shares) -> dict[str, str]:
    """Return the files of a cgroup, with the text to write a line at a time. `more` is added to limits."""
    found = {}
    for name, share in shares.items():
        number = share and share + more.get(name, 0)
        if name == CPU_MAX:
            found[name] = f"{number * _OF_A_PERCENT or 'max'} {_PERIOD}"
        elif name == CPU_WEIGHT:
            found[name] = str(number or _DEFAULT_WEIGHT)
        elif name == IO_WEIGHT:
            found[name] = f"default {number or _DEFAULT_WEIGHT}"
        elif not name.startswith(IO_MAX):
            found[name] = str(number or "max")
    devices = dict.fromkeys(name.split()[1] for name in shares if name.startswith(IO_MAX))
    if devices:
        found[IO_MAX] = "\n".join(_io_line(device, shares) for device in devices)
    return found


def _io_line(device: str, shares: Shares) -> str:
    return " ".join(
        [device, *(f"{figure}={shares.get(f'{IO_MAX} {device} {figure}') or 'max'}" for figure in _FIGURES)]
    )


def io_max(lines: Iterable[str]) -> dict[str, int]:
    """Return the shares of lines like `/dev/vda:rbps=1M,wiops=100`. Raises BadShare."""
    shares = {}
    for line in lines:
        name, colon, figures = line.rpartition(":")
        if not colon or not figures:
            raise BadShare("io_max", f"{line[:80]!r} is not DEVICE:FIGURE=NUMBER,... with rbps, wbps, riops or wiops")
        device = _device(name)
        for word in figures.split(","):
            figure, _, size = word.partition("=")
            if figure not in _FIGURES:
                raise BadShare("io_max", f"{line[:80]!r}: {figure[:20]!r} is none of {', '.join(_FIGURES)}")
            number = 0 if size == "max" else amount(size) or -1
            if number < 0:
                raise BadShare("io_max", f"{line[:80]!r}: {size[:20]!r} is neither a number from 1 nor max")
            shares[f"{IO_MAX} {device} {figure}"] = number
    return shares


def hugetlb_max(lines: Iterable[str]) -> dict[str, int]:
    """Return the shares of lines like `2MB:1G`, or `2MB:max`. Raises BadShare."""
    shares = {}
    for line in lines:
        size, _, most = line.partition(":")
        number = 0 if most == "max" else amount(most)
        if not (size.isascii() and size.isalnum()) or number is None:
            raise BadShare("hugetlb_max", f"{line[:80]!r} is no size and its limit, as 2MB:1G")
        none = most != "max" and not number
        shares[f"{_HUGE_PAGES}{size}.max"] = 1 if none else number  # the kernel rounds down to whole pages
    return shares


def amount(word: str) -> int | None:
    """Return a number, with K, M, G or T of 1024; None for no number."""
    return scaled(word, _MOST)


def _device(name: str) -> str:
    """Return the numbers of a whole disk, given as a path below /dev or as MAJOR:MINOR. Raises BadShare."""
    major, colon, minor = name.partition(":")
    numbers = whole(major, _LARGEST), whole(minor, _LARGEST)
    if colon and None not in numbers:
        device = f"{numbers[0]}:{numbers[1]}"
    else:
        number = _look_up(name)
        device = f"{os.major(number)}:{os.minor(number)}"
    here = f"/sys/dev/block/{device}"
    if not os.path.exists(here):
        raise BadShare("io_max", f"{name[:80]!r}: no block device has the numbers {device}")
    if os.path.exists(f"{here}/partition"):
        disk = os.path.basename(os.path.dirname(os.path.realpath(here)))
        raise BadShare("io_max", f"{name[:80]!r} is a partition; limits are those of its disk, /dev/{disk}")
    return device


def _look_up(name: str) -> int:
    below = name.removeprefix("/dev/")
    if below == name or not below:
        raise BadShare("io_max", f"{name[:80]!r} is neither a path below /dev nor MAJOR:MINOR")
    top = os.open("/dev", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = _namespace.openat2(top, below, os.O_PATH, _BENEATH)
    except OSError as error:
        outside = error.errno in (errno.EXDEV, errno.ELOOP)
        reason = "it leads out of /dev" if outside else os.strerror(error.errno or 0)
        raise BadShare("io_max", f"{name[:80]!r}: {reason}") from None
    finally:
        os.close(top)
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    if not stat.S_ISBLK(status.st_mode):
        raise BadShare("io_max", f"{name[:80]!r} is no block device")
    return status.st_rdev
