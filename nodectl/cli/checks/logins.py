"""Whether PAM lets login sessions join jobs, and in an order that is safe: findings of `nodectl doctor`."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from nodectl.cli.checks.check import OK, WARN, Check
from nodectl.model.config import Config

_DIRECTORY = "/etc/pam.d"
_OURS, _SYSTEMD, _ENVIRONMENT, _OF_USER = "nodectl login --pam", "pam_systemd.so", "pam_env.so", "user_readenv=1"
_DEEPEST = 8  # files that include each other
_GUIDE = "docs/guides/login-sessions.md has the line"


class _Line(NamedTuple):
    """A line about sessions: how much its failure counts, and the module with its arguments."""

    control: str
    module: str


def all_checks(config: Config, directory: str = _DIRECTORY) -> Iterator[Check]:
    """Yield what is found about login sessions; nothing where no session is to join a job."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        names = []
    stacks = {name: list(_sessions(directory, name, 0)) for name in names}
    ours = {name: lines for name, lines in stacks.items() if any(map(_is_ours, lines))}
    if config.login_entry != "off" and not ours:
        words = f'login_entry = "{config.login_entry}", and no file of {directory} calls nodectl: sessions join no job'
        yield Check(WARN, "logins", words, _GUIDE)
    for name, lines in ours.items():
        yield _stack(f"{directory}/{name}", lines, config)


def _stack(path: str, lines: list[_Line], config: Config) -> Check:
    place = next(number for number, line in enumerate(lines) if _is_ours(line))
    before = [line.module for line in lines[:place]]
    if any(_ENVIRONMENT in module and _OF_USER in module for module in before):
        why = "after pam_env with user_readenv=1: users choose variables, such as LD_PRELOAD, of a program of root's"
        return Check(WARN, "logins", f"{path}: nodectl is called {why}", "move the line up, directly after pam_systemd")
    if any(_SYSTEMD in line.module for line in lines[place:]):
        why = "before pam_systemd, which takes sessions out of their jobs again"
        return Check(
            WARN, "logins", f"{path}: nodectl is called {why}", "move the line down, directly after pam_systemd"
        )
    refuses = config.login_entry == "require" or (config.login_entry != "off" and config.login_when_down == "refuse")
    if refuses and lines[place].control not in ("required", "requisite"):
        words = (
            f"{path}: the line is {lines[place].control}: it refuses no session, as login_entry or login_when_down ask"
        )
        return Check(WARN, "logins", words, _GUIDE)
    return Check(OK, "logins", f"{path} calls nodectl; login_entry is {config.login_entry}")


def _is_ours(line: _Line) -> bool:
    return _OURS in line.module


def _sessions(directory: str, name: str, depth: int) -> Iterator[_Line]:
    """Yield the lines about sessions of a file, with those of the files that it includes: pam.conf(5)."""
    try:
        with open(f"{directory}/{name}", encoding="utf-8", errors="replace") as file:
            lines = file.read().replace("\\\n", " ").splitlines()
    except OSError:
        return
    for line in lines:
        kind, rest = _parted(line.partition("#")[0])
        if kind == "@include" and depth < _DEEPEST:
            yield from _sessions(directory, rest, depth + 1)
        if kind.lstrip("-") != "session":
            continue
        control, _, module = rest[1:].partition("]") if rest.startswith("[") else ("", "", "")
        if not module:
            control, module = _parted(rest)
        if control in ("include", "substack") and depth < _DEEPEST:
            yield from _sessions(directory, module.strip(), depth + 1)
        else:
            yield _Line(control, " ".join(module.split()))


def _parted(text: str) -> tuple[str, str]:
    """Return the first word and the rest."""
    first, *rest = text.split(None, 1) or [""]
    return first, rest[0].strip() if rest else ""
