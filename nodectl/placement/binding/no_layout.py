"""The only exception by which binding refuses a request."""

_LONGEST = 400


class NoLayout(Exception):
    """The request has no layout, being impossible or senseless.

    `reason`: a bounded, printable line for the user, whatever words of the user it quotes. `subject`: a subject of
    `nodectl/client/advice.py`, or "".
    """

    def __init__(self, reason: str, subject: str = "") -> None:
        self.subject = subject
        text = reason if len(reason) <= _LONGEST else reason[:_LONGEST] + "..."
        self.reason = text if text.isprintable() else "".join(map(_printable, text))
        super().__init__(self.reason)


def _printable(letter: str) -> str:
    return letter if letter.isprintable() else repr(letter)[1:-1]
