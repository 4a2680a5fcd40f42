"""Lists with commas also inside brackets: `n[1-3,7],m2`."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """Split at the commas outside of brackets. An unclosed bracket extends to the end of the text."""
    found = []
    begun: list[str] = []  # the parts of a word whose bracket is open
    for part in text.split(","):
        begun.append(part)
        if "]" in part or (len(begun) == 1 and "[" not in part):
            found.append(",".join(begun))
            begun = []
    return [*found, ",".join(begun)] if begun else found
