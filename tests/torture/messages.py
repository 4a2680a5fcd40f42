"""Mutated Varlink messages: valid calls of every method, from the interfaces' own texts, and what becomes of them.

Structural mutations work on the decoded call (a member dropped, swapped, doubled, of another type, huge, deep),
byte-wise ones on its text.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources

import varlink
from varlink import scanner

INTERFACES = ("org.nodectl", "org.nodectl.step", "org.varlink.service")
_LONGEST = 1 << 17
_MANY = 100
_MOST_DEEP = 16  # values in a message

# What a member of this name may sensibly be; the others are made by their types.
_SENSIBLE: Mapping[str, Callable[[random.Random], object]] = {
    "argv": lambda _: ["true"],
    "environment": lambda _: {"PATH": "/usr/bin:/bin"},
    "cwd": lambda _: "/",
    "ntasks": lambda rng: rng.choice((1, 1, 2)),
    "job": lambda rng: rng.randint(1, 40),
    "jobid": lambda rng: rng.randint(1, 40),
    "step": lambda rng: rng.choice((0, 0, 0, 1)),
    "signal": lambda rng: rng.choice((1, 10, 15, 18)),
    "time_limit": lambda _: 60,
    "cpu_bind": lambda rng: rng.choice(("cores", "none", "map_cpu:0", "mask_cpu:0x1", "verbose,threads")),
    "layout": lambda rng: {rng.choice(("distribution", "hint", "exclusive", "nodelist")): "block"},
    "secure": lambda rng: rng.choice(("none", "default", "strict")),
    "interface": lambda rng: rng.choice(INTERFACES),
    "container_ns": lambda _: ["net"],
    "io_max": lambda _: ["/dev/null:rbps=1"],
    "hugetlb_max": lambda _: ["2MB:1G"],
    "rlimits": lambda _: {"NOFILE": 1024},
    "options": lambda _: [["a", "b", "c"]],
    "path": lambda _: "/tmp/odd",
    "mode": lambda _: 0o644,
}
_EVIL: tuple[Callable[[random.Random], object], ...] = (
    lambda _: None,
    lambda rng: rng.choice((True, False)),
    lambda rng: rng.choice((0, -1, 1 << 31, 1 << 32, 1 << 63, -(1 << 63), 1 << 64, 10**400, 1, 64, 65)),
    lambda rng: rng.choice((0.5, -0.0, 1e308, float("inf"), float("nan"))),
    lambda rng: rng.choice(("", "a\0b", "\ud800", "\udcff", "\u202e", "😀", "%s%n", "../../etc", "-1", "9" * 5000)),
    lambda rng: "x" * rng.choice((1000, 65_536, 131_072)),
    lambda rng: "\n" * rng.randint(1, 100),
    lambda rng: [[]] * rng.randint(0, 2000),
    lambda rng: {str(number): number for number in range(rng.randint(0, 500))},
    lambda _: {"": "", "__class__": [], "\0": {}},
    lambda rng: Deep(rng.choice((10, 900, 1100, 5000))),
    lambda rng: rng.choice(
        ("map_cpu:0*99999999", "mask_cpu:" + "f" * 4000, "0-4294967295", "a[1-99999999]", "1,," * 500)
    ),
)


class Deep:
    """Nested lists, deeper than a program that recurses can write."""

    def __init__(self, depth: int) -> None:
        self.text = "[" * depth + "]" * depth

    def __str__(self) -> str:
        return self.text


def calls(rng: random.Random) -> Callable[[], dict[str, object]]:
    """What makes valid calls, of every method in turn by chance."""
    methods = []
    for name in INTERFACES:
        text = resources.files("nodectl.model.wire").joinpath(f"{name}.varlink").read_text(encoding="utf-8")
        interface = varlink.Interface(text)
        methods += [
            (f"{name}.{member.name}", member.in_type, interface)
            for member in interface.members.values()
            if isinstance(member, scanner._Method)
        ]  # the scanner exports no names
    methods.sort(key=lambda method: method[0])

    def one() -> dict[str, object]:
        name, parameters, interface = rng.choice(methods)
        message: dict[str, object] = {"method": name, "parameters": _value(rng, parameters, interface)}
        for flag in ("more", "oneway"):
            if rng.random() < 0.05:
                message[flag] = True
        return message

    return one


def _value(rng: random.Random, kind: object, interface: varlink.Interface, name: str = "") -> object:
    """A valid value; members that may be missing mostly are."""
    if name in _SENSIBLE:
        return _SENSIBLE[name](rng)
    words = type(kind).__name__
    if words == "_Maybe":
        return _value(rng, kind.element_type, interface, name)  # type: ignore[attr-defined]
    if words == "_CustomType":
        return _value(rng, interface.members[kind.name].type, interface)  # type: ignore[attr-defined]
    if words == "_Struct":
        return {
            member: _value(rng, of, interface, member)
            for member, of in kind.fields.items()  # type: ignore[attr-defined]
            if type(of).__name__ != "_Maybe" or rng.random() < 0.15
        }
    if words == "_Array":
        return [_value(rng, kind.element_type, interface)] * rng.randint(0, 3)  # type: ignore[attr-defined]
    if words == "_Dict":
        return {"a": _value(rng, kind.element_type, interface)}  # type: ignore[attr-defined]
    return {"bool": True, "int": rng.randint(0, 9), "float": 0.5}.get(words, "a")


def mutated(rng: random.Random, valid: Callable[[], dict[str, object]]) -> bytes:
    """The bytes of one message, mostly with its NUL."""
    message = valid()
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        _mutate(rng, message, valid)
    text = _encoded(rng, message)
    if rng.random() < 0.3:
        text = _garbled(rng, text)
    return text[:_LONGEST] + (b"" if rng.random() < 0.01 else b"\0")


def _mutate(rng: random.Random, message: dict[str, object], valid: Callable[[], dict[str, object]]) -> None:
    """One change at any place of the call."""
    place: object = message
    while True:
        inner = list(place.values()) if isinstance(place, dict) else place
        deeper = [item for item in inner if isinstance(item, dict | list)]  # type: ignore[attr-defined]
        if not deeper or rng.random() < 0.25:
            break
        place = rng.choice(deeper)
    if isinstance(place, dict):
        _mutate_members(rng, place, valid)
    elif isinstance(place, list):
        _mutate_list(rng, place, valid)


def _mutate_members(rng: random.Random, place: dict[str, object], valid: Callable[[], dict[str, object]]) -> None:
    names = list(place) or ["new"]
    name, other = rng.choice(names), rng.choice(names)
    match rng.randrange(6):
        case 0:
            place.pop(name, None)
        case 1:
            place[name], place[other] = place.get(other), place.get(name)
        case 2:
            place[str(rng.choice(_EVIL)(rng))[:100]] = rng.choice(_EVIL)(rng)
        case 3:
            place[name] = valid()
        case _:
            place[name] = rng.choice(_EVIL)(rng)


def _mutate_list(rng: random.Random, place: list[object], valid: Callable[[], dict[str, object]]) -> None:
    at = rng.randrange(len(place) + 1)
    match rng.randrange(5):
        case 0:
            del place[at : at + 1]
        case 1:
            place.reverse()
        case 2:
            place *= rng.choice((2, 100)) if len(place) < _MANY else 2  # more would be cut off again
        case 3:
            place.insert(at, valid())
        case _:
            place[at : at + 1] = [rng.choice(_EVIL)(rng)]


def _encoded(rng: random.Random, message: Mapping[str, object]) -> bytes:
    """Its JSON, in one way or another; a member may be there twice."""
    deep: list[str] = []

    def other(value: object) -> object:
        assert isinstance(value, Deep)
        if len(deep) == _MOST_DEEP:  # a list of them may have been repeated
            return "deep"
        deep.append(value.text)
        return f"<deep {len(deep) - 1}>"

    encoder = json.JSONEncoder(ensure_ascii=rng.random() < 0.5, default=other)
    text = "".join(_first(_LONGEST, encoder.iterencode(message)))
    text = re.sub('"<deep ([0-9]+)>"', lambda marker: deep[int(marker[1])], text)
    if rng.random() < 0.05:
        member = json.dumps(rng.choice(sorted(message))) if message else '"method"'
        text = text.replace("{", f"{{{member}: 5, ", 1)
    return text.encode("utf-8", "surrogatepass")


def _first(count: int, pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces with the first `count` characters. The rest, perhaps hundreds of megabytes, is never made."""
    for piece in pieces:
        yield piece
        count -= len(piece)
        if count < 0:
            return


def _garbled(rng: random.Random, text: bytes) -> bytes:
    """Some of its bytes changed, taken away, added or repeated."""
    data = bytearray(text)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                del data[at : at + rng.randint(1, 8)]
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                data[at:at] = data[at : at + rng.randint(1, 40)] * rng.randint(1, 20)
            case _:
                data[at:at] = rng.choice((b"\0", b"{", b'"', b"\\u0000", b"\xff", b"]", b"null"))
    return bytes(data)
