"""Whole numbers typed by people: ASCII digits, bounded before parsing.

int() accepts more (blanks, signs, underscores, the digits of other scripts), reads long texts slowly, and refuses 4,301
digits with a message of its own. Pure and lean; every process uses this module.
"""

SHIFTS = {"K": 10, "M": 20, "G": 30, "T": 40}


def whole(text: str, most: int) -> "int | None":
    """Return the number, None for any other text or a number above `most`. Accept any count of leading zeros."""
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None


def scaled(text: str, most: int) -> "int | None":
    """Return a number, with K, M, G or T of 1024 behind it; None for any other text or a result above `most`."""
    shift = SHIFTS.get(text[-1:].upper(), 0)
    number = whole(text[:-1] if shift else text, most >> shift)
    return None if number is None else number << shift


def mebibytes(text: str, most: int) -> "int | None":
    """Return an amount of memory in MiB, the unit of a bare number: 64M, 1G, 2T, 512K (rounded up); as `scaled`."""
    word = text.upper().removesuffix("B").removesuffix("I")
    number = scaled(word if word[-1:] in SHIFTS else f"{word}M", most << SHIFTS["M"])
    return None if number is None else -(-number >> SHIFTS["M"])
