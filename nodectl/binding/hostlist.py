"""Names of nodes as Slurm writes them: `n1`, `n[1-3,7]`, `n[01-10],m2`."""

from __future__ import annotations

from nodectl.binding.refused import Refused

MAX_NAMES = 65_536


def expand(text: str) -> tuple[str, ...]:
    """The names of a list, in its order; blank is none. Raises Refused."""
    names: list[str] = []
    for word in _words(text):
        head, bracket, rest = word.partition("[")
        inside, closed, tail = rest.partition("]")
        if not bracket:
            names.append(word)
            continue
        if not closed or "[" in tail:
            raise Refused(f"node list {text[:60]!r}: brackets do not match")
        for part in inside.split(","):
            low, dash, high = part.partition("-")
            high = high if dash else low
            if not all(number.isascii() and number.isdecimal() and len(number) < 7 for number in (low, high)):
                raise Refused(f"node list {text[:60]!r}: {part!r} is not a number or a range")
            if not 0 <= int(high) - int(low) < MAX_NAMES - len(names):
                raise Refused(f"node list {text[:60]!r}: {part!r} runs backwards or is too long")
            names += [f"{head}{number:0{len(low)}}{tail}" for number in range(int(low), int(high) + 1)]
    return tuple(names)


def _words(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    words, depth = [""], 0
    for char in text.strip():
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            words.append("")
        else:
            words[-1] += char
    return [word.strip() for word in words if word.strip()]
