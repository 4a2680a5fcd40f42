"""Text files named in options."""

from nodectl.client.command import BadOption

_MOST = 16 << 20  # bytes


def read(path: str, what: str) -> str:
    """Return the whole text. Raises BadOption.

    `what` begins the error line.
    """
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(_MOST + 1)
    except OSError as error:
        raise BadOption(f"{what} {path!r}: {error.strerror}") from None
    if len(text) > _MOST:
        raise BadOption(f"{what} {path!r}: longer than {_MOST >> 20} MiB")
    return text
