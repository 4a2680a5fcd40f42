"""Amounts of bytes as sacct prints them. Pure."""

_UNITS = ("", "K", "M", "G", "T", "P")
UNITS = _UNITS[1:]
_STEP = 1024


def amount(count: int | None, unit: str = "", *, plain: bool = False) -> str:
    """Format bytes in the largest unit of which they are a whole number, as 10148K. Return "" for None.

    With `unit`: in that unit, with at most two decimals. With `plain`: as the number of bytes.
    """
    if count is None:
        return ""
    if plain:
        return str(count)
    if unit:
        value = count / _STEP ** _UNITS.index(unit)
        return f"{value:.2f}".rstrip("0").rstrip(".") + unit
    place = 0
    while count and count % _STEP == 0 and place < len(_UNITS) - 1:
        count //= _STEP
        place += 1
    return f"{count}{_UNITS[place]}"


def near(count: int | None, unit: str = "", *, plain: bool = False) -> str:
    """Format bytes in the unit of their size with two decimals. Bytes read and written are rarely whole in any unit."""
    if count is None or plain or unit:
        return amount(count, unit, plain=plain)
    value, place = float(count), 0
    while value >= _STEP and place < len(_UNITS) - 1:
        value, place = value / _STEP, place + 1
    return f"{value:.2f}{_UNITS[place]}" if place else str(count)
