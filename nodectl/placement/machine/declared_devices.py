"""The devices of a node, and the lines of gres.conf that declare them, as the key `gres` holds them.

Pure functions of values, in the daemon and in commands. `detected_devices.py` adds devices that nobody declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from nodectl.model import brackets
from nodectl.model.cpu_list import parse_cpulist
from nodectl.model.device_part import MEMORY, MOST_MEMORY, MOST_SHARDS, SHARD
from nodectl.model.number import mebibytes, whole
from nodectl.model.value_class import dataclass, replace

GPU = "gpu"
SYSFS, CDI = "sysfs", "cdi"
MOST = 1024  # devices of one node
LAST_MINOR = 9999
_WORDS = (
    "name", "type", "file", "multiplefiles", "cores", "count", "memory", "uuid", "autodetect", "flags", "links",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Device:
    """A device. `number`: the libraries' number of the device, dense for each name unless the file has a number.

    `cores` are the numbers of the cores near the device as gres.conf counts cores (abstract), None where nothing was
    declared; `cpus` is the machine mask of the near CPUs from sysfs, 0 if sysfs has none. `also` are further files of
    the device. `id` is the libraries' name of the device where that is not a number, as GPU-5e6f. `shards` and
    `memory` (MiB) are its capacity for jobs that share it, `one_user`: only jobs of one user do. `part` is what a job
    holds of it, "" for all (`model/device_part.py`).
    """

    name: str
    number: int
    type: str = ""
    file: str = ""
    cores: tuple[int, ...] | None = None
    cpus: int = 0
    also: tuple[str, ...] = ()
    id: str = ""
    shards: int = 0
    memory: int = 0
    one_user: bool = False
    part: str = ""

    @property
    def key(self) -> str:
        """The device's name inside a step, gpu:0, with the part that the step's job holds: gpu:0/shard:2."""
        return f"{self.name}:{self.number}{self.part}"


def declared(lines: Iterable[str]) -> tuple[tuple[Device, ...], str]:
    """Read gres.conf's lines. Return the devices, and where to look for more: SYSFS, CDI or "". Raises ValueError."""
    lines = tuple(lines)
    devices: list[Device] = []
    detect = ""
    for line in lines:
        words = _line(line)
        if "autodetect" in words:
            detect = words["autodetect"].lower()
            if detect not in (SYSFS, CDI, "off"):
                raise ValueError(f"has {line!r}: AutoDetect={SYSFS}, {CDI} or off")
            detect = detect.removeprefix("off")
        if words.get("name") == SHARD:
            _shards(line, words)
        elif "name" in words:
            devices += _devices(line, words, devices)
        elif "autodetect" not in words:
            raise ValueError(f"has {line!r}: no Name=")
    if len(devices) > MOST:
        raise ValueError(f"declares more than {MOST} devices")
    return (tuple(devices) if detect else divided(devices, lines)), detect


def divided(devices: Iterable[Device], lines: Iterable[str]) -> tuple[Device, ...]:
    """Return the devices with the shards of the lines Name=shard: a line's are shared out evenly among its GPUs.

    Those are the GPUs of its File=, or else all, and of its Type=. Raises ValueError.
    """
    made = list(devices)
    for line in lines:
        words = _line(line)
        if words.get("name") != SHARD:
            continue
        count, files = _shards(line, words), set(_files(words.get("file", "")))
        places = [
            place for place, one in enumerate(made)
            if one.name == GPU and (not files or one.file in files) and words.get("type", one.type) == one.type
        ]  # fmt: skip
        if files - {made[place].file for place in places}:
            raise ValueError(f"has {line!r}: {min(files - {one.file for one in made})!r} is the file of no GPU")
        for number, place in enumerate(places):
            each = count // len(places) + (number < count % len(places))
            if each > MOST_SHARDS:
                raise ValueError(f"has {line!r}: more than {MOST_SHARDS} shards of a device")
            made[place] = replace(made[place], shards=each)
    return tuple(made)


def memory_of(text: str) -> int:
    """Return an amount of memory of a device in MiB, -1 for another text or too much."""
    try:
        amount = mebibytes(text)
    except ValueError:
        return -1
    return amount if amount <= MOST_MEMORY else -1


def _shards(line: str, words: Mapping[str, str]) -> int:
    count = whole(words.get("count", ""), MOST * MOST_SHARDS)
    if not count or words.keys() - {"name", "count", "file", "type"}:
        raise ValueError(f"has {line!r}: give Name={SHARD} with Count=, and File= or Type= for some of the GPUs only")
    return count


def _line(line: str) -> dict[str, str]:
    words = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals or not value or key.lower() not in _WORDS:
            raise ValueError(f"has {line!r}: {word!r} is none of {', '.join(_WORDS)} with its value")
        words[key.lower()] = value
    return words


def _devices(line: str, words: Mapping[str, str], before: Sequence[Device]) -> Iterator[Device]:
    name = words["name"]
    if not name or "/" in name or ":" in name or name == MEMORY:
        raise ValueError(f"has {line!r}: {name!r} is no name of a device")
    taken = {device.number for device in before if device.name == name}
    files = list(_files(words.get("file", "")))
    also = tuple(_files(words.get("multiplefiles", "")))  # one device with several files, as an instance of MIG
    if files and also:
        raise ValueError(
            f"has {line!r}: File= makes a device of each file, MultipleFiles= one of all: give one of both"
        )
    if not files and not also:
        count = whole(words.get("count", "1"), MOST)
        if not count:
            raise ValueError(f"has {line!r}: Count={words['count']} is not from 1 to {MOST}")
        files = [""] * count
    memory = memory_of(words.get("memory", "0"))
    if memory < 0:
        raise ValueError(f"has {line!r}: Memory={words['memory']} is no amount such as 80G")
    cores = tuple(sorted(parse_cpulist(words["cores"]))) if "cores" in words else None
    if "uuid" in words and len(files) > 1:
        raise ValueError(f"has {line!r}: UUID= is the name of one device, and not of {len(files)}")
    for file in files or also[:1]:
        for path in (file, *also):
            if path and not path.startswith("/"):
                raise ValueError(f"has {line!r}: {path!r} is no absolute path")
        number = _own_number(file, taken) if files else _lowest(taken)
        taken.add(number)
        yield Device(
            name, number, words.get("type", ""), file, cores, also=also[1:], id=words.get("uuid", ""), memory=memory
        )


def _own_number(file: str, taken: set[int]) -> int:
    """Return the number in an NVIDIA file's name, which is also the library's number; else the lowest that is free."""
    tail = file.removeprefix("/dev/nvidia")
    own = whole(tail, LAST_MINOR) if tail != file else None
    return _lowest(taken) if own is None or own in taken else own


def _lowest(taken: set[int]) -> int:
    return next(number for number in range(len(taken) + 1) if number not in taken)


def _files(text: str) -> Iterator[str]:
    """Expand `/dev/nvidia[0-3,6]` and commas between files."""
    for word in filter(None, brackets.words(text)):
        head, bracket, rest = word.partition("[")
        numbers, _, tail = rest.partition("]")
        if bracket:
            yield from (f"{head}{number}{tail}" for number in sorted(parse_cpulist(numbers)))
        else:
            yield word
