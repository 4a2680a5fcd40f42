"""Help text lines for options."""

from nodectl.client.command import environ
from nodectl.model.number import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodectl.client.run_options import Option

_MAYBE_ARGUMENT = 2
_COLUMNS, _MOST_COLUMNS = 80, 99_999


def columns() -> int:
    """Return the width of help texts, the same for all commands."""
    return whole(environ().get("COLUMNS", ""), _MOST_COLUMNS) or _COLUMNS


def option_lines(options: "Iterable[Option]", columns: int = 80) -> list[str]:
    """Return the options as lines of help."""
    lines: list[str] = []
    for option in options:
        short = f"-{option.short}, " if option.short else "    "
        argument = option.arginfo
        if argument and option.has_arg == _MAYBE_ARGUMENT and not argument.startswith("["):
            argument = f"[={argument}]"
        elif argument:
            argument = f"={argument}" if not argument.startswith("[=") else argument
        head = f"  {short}--{option.long}{argument}"
        text = wrapped(option.help, max(columns - 32, 20))
        if len(head) > 30:  # the column of the texts
            lines.append(head)
            head = ""
        lines += [f"{head:31} {text[0]}", *(f"{'':31} {line}" for line in text[1:])]
    return lines


def status_lines(command: str, columns: int = 80) -> list[str]:
    """Return the exit statuses of the command as lines of help."""
    from nodectl.model.exit_statuses import of_command  # only for --help

    lines = ["", "Exit status:"]
    for status, meaning in of_command(command):
        first, *others = wrapped(meaning, max(columns - 12, 20))
        lines += [f"  {status:8}  {first}", *(f"{'':12}{line}" for line in others)]
    return lines


def wrapped(text: str, width: int) -> list[str]:
    """Wrap the text into lines; a line may also break after the bar of a list of alternatives."""
    lines = [""]
    for word in text.split():
        for place, part in enumerate(word.replace("|", "|\0").split("\0")):
            joint = " " if place == 0 and lines[-1] else ""
            if lines[-1] and len(lines[-1]) + len(joint) + len(part) > width:
                lines.append(part)
            else:
                lines[-1] += joint + part
    return lines
