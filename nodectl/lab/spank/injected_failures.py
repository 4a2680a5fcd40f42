"""`--fail [CONTEXT:]HOOK:VALUE` of `nodectl spank try`: replaced results of hooks, and the documented consequences."""

from collections.abc import Iterable
from dataclasses import dataclass

from nodectl.client.command import Failed
from nodectl.model.launch_order import LOCAL_HOOKS, LOCAL_OPTION, OPTION, ROWS, SLURMD_HOOKS, SPANK_PREFIX, Hook
from nodectl.spank.contexts import CONTEXTS, Context, short

_COMMANDS = ("allocator", "local")
_USAGE = 2


@dataclass(frozen=True, slots=True)
class Fail:
    """A hook of a context and the value in place of the hook's result."""

    context: Context
    hook: str
    value: int

    def __str__(self) -> str:
        return f"{self.context.name}:{short(self.hook)}:{self.value}"


def parse(words: Iterable[str], hooks: Iterable[str]) -> list[Fail]:
    """Parse the values of --fail. `hooks`: the plugin's hooks. Raises Failed."""
    has = {*hooks, OPTION.call}
    found = []
    for word in words:
        *where, name, text = ["", *word.split(":")]
        where = where[1:]
        if len(where) > 1 or not name or not _is_number(text):
            raise Failed(f"--fail {word}: HOOK:VALUE or CONTEXT:HOOK:VALUE is needed, as in task_init:-1", _USAGE)
        hook = name if name == OPTION.call or name.startswith(SPANK_PREFIX) else SPANK_PREFIX + name
        possible = [
            context for context in CONTEXTS if hook in context.calls or (hook == OPTION.call and _has_options(context))
        ]
        chosen = [context for context in possible if not where or context.name == where[0]]
        if not possible:
            raise Failed(f"--fail {word}: {name} is no hook of any context", _USAGE)
        if not chosen:
            raise Failed(f"--fail {word}: {name} is called in: {_names(possible)}", _USAGE)
        if len(chosen) > 1:
            raise Failed(
                f"--fail {word}: {name} is called in {_names(possible)}: say which, as in {possible[-1].name}:{word}",
                _USAGE,
            )
        if hook not in has:
            raise Failed(f"--fail {word}: the plugin has no {short(hook)}", _USAGE)
        found.append(Fail(chosen[0], hook, int(text)))
    return found


def costs(context: Context, hook: str) -> str:
    """Return the words about the consequence when this hook of a required plugin fails."""
    if context.name in _COMMANDS:
        rows: Iterable[Hook] = (*LOCAL_HOOKS, LOCAL_OPTION)
    else:
        rows = SLURMD_HOOKS if context.name == "slurmd" else ROWS.values()
    return next((row.costs for row in rows if row.call == hook), "")


def _has_options(context: Context) -> bool:
    return context.name in (*_COMMANDS, "remote")


def _names(contexts: Iterable[Context]) -> str:
    return ", ".join(context.name for context in contexts)


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 10
