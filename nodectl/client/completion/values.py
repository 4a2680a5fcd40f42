"""The possible values of an option's argument or of a word, known without asking. Pure, but for accounts."""

import os
import signal
from collections.abc import Callable, Iterable

from nodectl.client.completion.grammar import Item
from nodectl.client.job_changes import CHANGES
from nodectl.client.launch_request import RLIMITS
from nodectl.client.srun import value_help
from nodectl.launch.container.settings import NAMESPACES
from nodectl.model import notice
from nodectl.model.states import IN_QUEUE, SHORT, STATES

FILES, DIRECTORIES, USERS, COMMANDS, WORDS = "files", "directories", "users", "commands", "words"
Candidate = tuple[str, str]  # a word and its meaning

# What the shell itself completes, by what the argument is called.
_KINDS = {
    "FILE": FILES, "FILES": FILES, "SPEC|FILE": FILES, "PLUGIN": FILES, "SCRIPT": FILES, "DIR": DIRECTORIES,
    "USER": USERS, "USER,...": USERS, "COMMAND": COMMANDS,
}  # fmt: skip
_KINDS_OF_OPTIONS = {"--user": USERS, "--users": USERS}
_DEPENDENCIES = (
    ("after:", "when it has begun"), ("afterany:", "when it has ended"), ("afterok:", "when it has ended well"),
    ("afternotok:", "when it has failed"), ("aftercorr:", "task by task of an array"),
    ("singleton", "one of this name and user at a time"), ("expand:", "gives that job more"),
)  # fmt: skip
_STATES = tuple((SHORT[state], state.lower()) for state in IN_QUEUE)
_DISTRIBUTIONS = ("block", "cyclic", "plane=", "arbitrary", "block:block", "block:cyclic", "cyclic:block",
                  "cyclic:cyclic", "block:fcyclic")  # fmt: skip


def _plain(words: Iterable[str]) -> list[Candidate]:
    return [(word, "") for word in words]


def _told_by_help(name: str) -> Callable[[], list[Candidate]]:
    """Return a function for the values printed by --cpu-bind=help and similar options, as typed."""

    def rows() -> list[Candidate]:
        found = []
        for shown, meaning in value_help.TEXTS[name][1]:
            for word in shown.split(", "):
                begun, colon, _ = word.partition(":")
                found.append((begun.replace("[", "").replace("]", "") + colon, meaning))
        return found

    return rows


def _signals() -> list[Candidate]:
    return _plain(sorted(number.name.removeprefix("SIG") for number in signal.Signals))


def _acct_fields() -> list[Candidate]:
    from nodectl.model.accounting.fields import FIELDS

    return _plain(field.name for field in FIELDS.values())


def _queue_columns() -> list[Candidate]:
    from nodectl.client.render.job_columns import COLUMNS

    return [(name, column.header.lower()) for name, column in COLUMNS.items()]


def _changes() -> list[Candidate]:
    return [(f"{key}=", text) for key, _, _, text in CHANGES.values()]


# By option, where need be with the command in front; those of _LISTS are lists with commas.
_VALUES: dict[str, Callable[[], list[Candidate]]] = {
    "--cpu-bind": _told_by_help("cpu_bind"),
    "--mem-bind": _told_by_help("mem_bind"),
    "--gpu-bind": _told_by_help("gpu_bind"),
    "--hint": _told_by_help("hint"),
    "--distribution": lambda: _plain(_DISTRIBUTIONS),
    "--container-ns": lambda: _plain(NAMESPACES),
    "--secure": lambda: _plain(("none", "default", "strict")),
    "--mpi": lambda: _plain(("none", "pmi2", "pmix", "list")),
    "--export": lambda: [("ALL", "all of this shell's"), ("NONE", "none of them"), *_plain(sorted(os.environ))],
    "--propagate": lambda: _plain(("ALL", "NONE", *RLIMITS)),
    "--dependency": lambda: list(_DEPENDENCIES),
    "--exclusive": list,
    "--signal": _signals,
    "--kill-command": _signals,
    "--mail-type": lambda: _plain((*notice.EVENTS, notice.ARRAY_TASKS, "ALL", "NONE")),
    "--state": lambda: list(_STATES),
    "acct --state": lambda: _plain(STATES),
    "acct --format": _acct_fields,
    "queue --format": _queue_columns,
    "KEY=VALUE": _changes,
}
LISTS = frozenset({"--cpu-bind", "--mem-bind", "--gpu-bind", "--container-ns", "--export", "--propagate", "--state",
                   "--format", "--dependency", "--user", "--users", "--jobs", "--job",
                   "--mail-type"})  # fmt: skip


def kind_of(item: Item) -> str:
    """Return the shell's own kind for an argument; WORDS for values of `known`, or of the service."""
    for name in item.names:
        if name in _KINDS_OF_OPTIONS:
            return _KINDS_OF_OPTIONS[name]
    return _KINDS.get(item.metavar, WORDS)


def known(command: str, item: Item) -> list[Candidate]:
    """Return all possible values."""
    if item.choices:
        return _plain(item.choices)
    for name in (*item.names, item.metavar):
        make = _VALUES.get(f"{command} {name}") or _VALUES.get(name)
        if make is not None:
            return make()
    return _alternatives(item.metavar)


def _alternatives(metavar: str) -> list[Candidate]:
    """Return both words of "append|truncate"; names in capitals are placeholders."""
    words = metavar.split("|")
    return _plain(words) if len(words) > 1 and all(word == word.lower() and word.isalnum() for word in words) else []
