"""Whole numbers that people type: digits of ASCII, bounded before they are read.

int() takes more than that (blanks, signs, underscores, the digits of other scripts), reads long texts slowly, and
refuses 4,301 digits in words of its own. Pure and lean; every process uses it.
"""


def whole(text: str, most: int) -> "int | None":
    """The number, None for any other text and for a number above `most`. Leading zeros are taken, however many."""
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None
