"""A batch script before submission: the text, the options of #SBATCH lines, the errors.

Runs in `nodectl submit`, as its user.
"""

import os

from nodectl.client.command import BadOption, Failed, Program
from nodectl.model.wire.names import WRAPPED

LONGEST = 64 << 20  # bytes; the service takes less (max_script_size)
_MARKS = ("#SBATCH", "#NODECTL")
_COMPONENTS = ("hetjob", "packjob")


def found(word: str) -> str:
    """Return the file of a name; without '/', look in the working directory, then along PATH."""
    if "/" in word or os.path.exists(word):
        return word
    for directory in os.environ.get("PATH", "").split(":"):
        path = os.path.join(directory, word)
        if directory and os.path.isfile(path):
            return path
    return word


def read(word: str) -> str:
    """Return the text of a script, of standard input for "". Raises Failed."""
    path, name = found(word), word or "standard input"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if word else os.dup(0)
        with open(fd, "rb") as file:
            data = file.read(LONGEST + 1)
    except OSError as error:
        what = f"Unable to open file {name}" if Program.is_slurms() else name
        raise Failed(f"{what}: {error.strerror}") from None
    check(data, name)
    return data.decode("utf-8", "surrogateescape")


def wrapped(command: str) -> str:
    """Return the script of --wrap. Raises Failed."""
    if "\0" in command or len(command) > LONGEST:
        raise Failed("--wrap: too long for a script")
    return f"{WRAPPED}{command}\n"


def check(data: bytes, name: str) -> None:
    """Refuse data unfit for a batch script. Raises Failed."""
    if len(data) > LONGEST:
        raise Failed(f"{name}: longer than {LONGEST >> 20} MiB, the most that a batch script may have")
    if not data.strip():
        raise Failed(f"{name}: empty, not a batch script")
    if b"\0" in data:
        raise Failed(f"{name}: a binary file, not a batch script -> a command: nodectl submit --wrap 'COMMAND'")
    if not data.startswith(b"#!"):
        raise Failed(f"{name}: not a batch script: its first line is not #! with an interpreter, as in #!/bin/sh")
    if b"\r\n" in data:
        raise Failed(f"{name}: its lines end with carriage returns (DOS); convert it with dos2unix")


def option_lines(script: str) -> list[tuple[str, list[str]]]:
    """Return the place and the words of each option line before the first command. Raises BadOption."""
    lines: list[tuple[str, list[str]]] = []
    for number, line in enumerate(script.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        mark = next((mark for mark in _MARKS if line.startswith(mark) and line[len(mark) :][:1] in ("", " ", "\t")), "")
        if not mark:
            continue
        where = f"line {number}: {mark}"
        try:
            words = split(line[len(mark) :])
        except ValueError as error:
            raise BadOption(f"{where}: {error}") from None
        if words[:1] and words[0] in _COMPONENTS:
            raise BadOption(f"{where} {words[0]}: jobs of several components need several machines")
        if words:
            lines.append((where, words))
    return lines


def overlooked(script: str) -> str:
    """Return the place of the first option line behind the first command, which nobody reads; "" for none."""
    has_begun = False
    for number, line in enumerate(script.split("\n"), 1):
        has_begun = has_begun or bool(line.strip() and not line.lstrip().startswith("#"))
        mark = next((mark for mark in _MARKS if line.startswith((f"{mark} -", f"{mark}\t-"))), "")
        if has_begun and mark:
            return f"line {number}: {mark}"
    return ""


def split(text: str) -> list[str]:
    """Split words at blanks, up to a '#' at the start of a word. Raises ValueError.

    Quotes and backslashes work as in a shell.
    """
    words: list[str] = []
    word: str | None = None
    quote = ""
    letters = iter(text)
    for letter in letters:
        if letter == "\\" and quote != "'":
            word = (word or "") + next(letters, "")
        elif quote:
            if letter == quote:
                quote = ""
            else:
                word = (word or "") + letter
        elif letter in "'\"":
            quote, word = letter, word or ""
        elif letter in " \t":
            if word is not None:
                words.append(word)
            word = None
        elif letter == "#" and word is None:
            return words
        else:
            word = (word or "") + letter
    if quote:
        raise ValueError(f"no closing {quote}")
    return words if word is None else [*words, word]
