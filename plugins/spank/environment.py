"""environment: sets, extends and removes variables of every task.

Arguments in plugstack.conf, done in the order in which they stand:

    set=NAME=VALUE      whatever the user has
    default=NAME=VALUE  only where the user has no such variable
    prepend=NAME=VALUE  at the front of a list like PATH, parted by colons; not twice
    append=NAME=VALUE   at its end
    unset=NAME
    file=PATH           a file of such arguments, one a line, where a value may hold blanks; # begins a comment line

    required environment file=/etc/nodectl/environment prepend=PATH=/opt/site/bin unset=LD_PRELOAD

The file must belong to root, and its directories too; it is read at each step. Variables that nodectl itself sets
(SLURM_*) are set afterwards and win. No options for users. Hooks: init (arguments; a wrong one fails), init_post_opt
(stepd, root: the environment of all tasks, before any is forked).
"""

import os

from nodectl.kernel import trust
from nodectl.spank import SpankError, slurm_error, spank_getenv, spank_remote, spank_setenv, spank_unsetenv
from nodectl.spank.handle import Spank

plugin_type = "spank"
plugin_name = "environment"
plugin_version = (22, 5, 8)

_ACTIONS = ("set", "default", "prepend", "append", "unset")
_LONGEST_FILE = 1 << 20

_changes: list[tuple[str, str, str]] = []


def _change(word: str) -> tuple[str, str, str]:
    """Return the three parts of "set=NAME=VALUE". Raises ValueError with the reason."""
    action, _, rest = word.partition("=")
    name, equals, value = rest.partition("=")
    if action not in _ACTIONS:
        raise ValueError(f"begins with none of {', '.join(_ACTIONS)}")
    if not name:
        raise ValueError("names no variable")
    if bool(equals) == (action == "unset"):
        raise ValueError("has a value" if equals else "has no value")
    return action, name, value


def _words(path: str) -> list[str]:
    """Return the lines of a file= argument's file. Raises OSError, trust.Untrusted."""
    lines = (line.strip() for line in os.fsdecode(trust.read(path, _LONGEST_FILE)).split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def _read(words: list[str], where: str) -> bool:
    """Store the changes; report wrong words with `where`. Return True if all words are right."""
    good = True
    for word in words:
        try:
            _changes.append(_change(word))
        except ValueError as error:
            slurm_error(f"environment: {where}: {word!r} {error}")
            good = False
    return good


def slurm_spank_init(sp: Spank, ac: int, argv: list[str]) -> int:
    """Read the arguments; read the file only in the stepd, because users may lack the right to read the file."""
    good = True
    for word in argv:
        name, _, path = word.partition("=")
        if name != "file":
            good &= _read([word], "plugstack.conf")
        elif spank_remote(sp):
            try:
                good &= _read(_words(path), path)
            except (OSError, trust.Untrusted) as error:
                slurm_error(f"environment: {word!r}: {getattr(error, 'strerror', None) or error}")
                good = False
    return 0 if good else -1


def slurm_spank_init_post_opt(sp: Spank, ac: int, argv: list[str]) -> int:
    """Change the initial environment of every task. Stepd, root."""
    if not spank_remote(sp):
        return 0
    for action, name, value in _changes:
        try:
            old = spank_getenv(sp, name)
        except SpankError:
            old = None
        if action == "unset":
            spank_unsetenv(sp, name)
        elif action == "set" or old is None:
            spank_setenv(sp, name, value)
        elif action == "prepend" and not f"{old}:".startswith(f"{value}:"):
            spank_setenv(sp, name, f"{value}:{old}" if old else value)
        elif action == "append" and not f":{old}".endswith(f":{value}"):
            spank_setenv(sp, name, f"{old}:{value}" if old else value)
    return 0
