"""Suggestions for a misspelt word. Imported only where a word is misspelt."""

import difflib
from collections.abc import Iterable

_LIKE = 0.7  # of difflib: 1.0 is the same
_LONGEST = 64


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the most similar known word, "" where none is similar."""
    near = difflib.get_close_matches(word[:_LONGEST], sorted(known), n=1, cutoff=_LIKE)
    return near[0] if near else ""


def hint(word: str, known: Iterable[str]) -> str:
    """Return the text to add to the error about an unknown word: the nearest word, or nothing."""
    near = nearest(word, known)
    return f"; the nearest is {near}" if near else ""
