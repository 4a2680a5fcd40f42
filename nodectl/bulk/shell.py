"""Quoting for a shell as in GNU parallel, and lines which need no shell.

To a shell a line of plain words means the same as to execve(2). Without the shell it costs a fraction: so the words are
executed where the result is the same.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_UNQUOTED = frozenset(_LETTERS + "+-./_")
_PLAIN = frozenset(_LETTERS + "+-./_,:@% ")  # '=' is an assignment, or zsh's
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "mksh")  # that read no file of the user's at -c
# Keywords and builtins of POSIX shells, bash and ksh that differ from the program of the name, or have no such program.
_WORDS = """
    . : [ [[ alias autoload bg bind break builtin caller case cd command compgen complete compopt continue coproc
    declare dirs disown do done elif else enable esac eval exec exit export fc fg fi float for function functions
    getopts hash help hist history if in integer jobs kill let local logout mapfile nameref popd print printf pushd
    pwd read readarray readonly return select set shift shopt source suspend test then time times trap type typeset
    ulimit umask unalias unset until wait whence while
"""
_OWN = frozenset(_WORDS.split())
_PROGRAM_TOO = ("echo", "true", "false")  # a shell's own too, and the same as long as no argument is an option
_MOST_KNOWN = 4096


def quote(value: str) -> str:
    """Return the value as a shell word."""
    if _UNQUOTED.issuperset(value):
        return value or "''"
    text = "'" + value.replace("'", "'\"'\"'") + "'"
    if "'" in value:  # nothing is quoted twice at its ends
        text = text.removeprefix("''").removesuffix("''")
    return text


def plain_words(line: str) -> list[str] | None:
    """Return the words of a line whose only shell syntax is blanks and '...'; None for any other line."""
    if _PLAIN.issuperset(line):
        return line.split()
    if "'" not in line:
        return None
    parts = line.split("'")
    if len(parts) % 2 == 0 or not all(_PLAIN.issuperset(part) for part in parts[::2]):
        return None
    words: list[str] = []
    word: str | None = None
    for number, part in enumerate(parts):
        if number % 2:
            word = (word or "") + part
            continue
        first, *others = part.split(" ")
        if first:
            word = (word or "") + first
        for other in others:
            if word is not None:
                words.append(word)
            word = other or None
    return words if word is None else [*words, word]


def users_shell(environ: "Mapping[str, str]") -> str:
    """Return the shell to run lines with."""
    return environ.get("PARALLEL_SHELL") or environ.get("SHELL") or "/bin/sh"


class Programs:
    """The converter of lines to words to execute, for tasks with this environment and directory."""

    __slots__ = ("_cwd", "_direct", "_path", "_shell")

    def __init__(self, shell: str, environment: "Mapping[str, str]", cwd: str) -> None:
        self._shell = shell
        self._cwd = cwd
        self._path = environment.get("PATH", "/bin:/usr/bin").split(":")
        # By first word, whether it is executed without a shell.
        self._direct: dict[str, bool] | None = {}
        if os.path.basename(shell) not in _SHELLS or "BASH_ENV" in environment:
            self._direct = None
            return
        for name in environment:  # bash's exported functions
            if name.startswith("BASH_FUNC_"):
                self._direct[name[10:].removesuffix("%%").removesuffix("()")] = False

    def argv(self, line: str) -> list[str]:
        """Return the argument vector to execute for this line."""
        if self._direct is not None and (words := plain_words(line)):
            first = words[0]
            direct = self._direct.get(first)
            if direct is None:
                direct = self._look(first)
            if direct and not (first in _PROGRAM_TOO and any(word[:1] == "-" for word in words)):
                return words
        return [self._shell, "-c", line]

    def _look(self, name: str) -> bool:
        assert self._direct is not None  # noqa: S101  # argv asks only then
        if len(self._direct) > _MOST_KNOWN:
            return False
        if "/" in name:
            found = _is_program(os.path.join(self._cwd, name))
        else:
            found = name not in _OWN and self._first_in_path(name)
        self._direct[name] = found
        return found

    def _first_in_path(self, name: str) -> bool:
        for directory in self._path:
            path = os.path.join(self._cwd, directory or ".", name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return _is_program(path)
        return False


def _is_program(path: str) -> bool:
    """Return True if the kernel executes the file itself.

    A shell interprets any other executable, and reports files which cannot be executed.
    """
    try:
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            return False
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False  # a program need not be readable; the shell finds out
    try:
        return os.read(fd, 4) in (b"\x7fELF",) or os.pread(fd, 2, 0) == b"#!"
    except OSError:
        return False
    finally:
        os.close(fd)
