"""What somebody meant who has misspelt a word. Imported only where that has happened."""

import difflib
from collections.abc import Iterable

_LIKE = 0.7  # of difflib: 1.0 is the same
_LONGEST = 64


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like this one; "" where none is."""
    near = difflib.get_close_matches(word[:_LONGEST], sorted(known), n=1, cutoff=_LIKE)
    return near[0] if near else ""


def hint(word: str, known: Iterable[str]) -> str:
    """What to put behind the complaint about an unknown word: the nearest one, or nothing."""
    near = nearest(word, known)
    return f"; the nearest is {near}" if near else ""
