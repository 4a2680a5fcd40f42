"""The configuration's keys about the plugins of the node: directories and types."""

from __future__ import annotations

import os

from nodectl.model.config.key import Key, section
from nodectl.model.config.values import Parser, absolute, is_plain, split_words, string
from nodectl.plugin_host import BUILTIN_DIR


def _plugin_dirs(value: object) -> tuple[str, ...]:
    """Return the site's directories and then the built-in directory, so a site's plugin replaces a built-in plugin."""
    dirs = [absolute(word) for word in split_words(value, ":")]
    return (*(path for path in dict.fromkeys(dirs) if path != BUILTIN_DIR), BUILTIN_DIR)


def _type(word: str, kind: str) -> str:
    start, _, name = word.partition("/")
    if start != kind or not is_plain(name, "_"):
        raise ValueError(f"has {word!r}")
    return word


def plugin_type(kind: str) -> Parser:
    """Return the parser of a plugin type of a kind: proctrack/cgroup."""

    def read(value: object) -> str:
        return _type(string(value), kind)

    return Parser(f"one type that begins with '{kind}/'", read)


def plugin_types(kind: str) -> Parser:
    """Return the parser of several plugin types of a kind, each once, in calling order."""

    def read(value: object) -> tuple[str, ...]:
        types = tuple(_type(word, kind) for word in split_words(value, ","))
        if len(set(types)) != len(types):
            raise ValueError("names a plugin twice")
        return types

    return Parser(f"types that begin with '{kind}/', each once, as a list or with ',' between them", read)


def _mpi_name(value: object) -> str:
    word = string(value).removeprefix("mpi/")
    if not is_plain(word, "_"):
        raise ValueError(f"is {word!r}")
    return word


# An installation without MPI's servers lacks the plugins which start them.
_MPI = tuple(f"mpi/{name}" for name in ("none", "pmi2", "pmix") if os.path.exists(f"{BUILTIN_DIR}/mpi/{name}.py"))
MPI_DEFAULT = Parser("auto, none, or the name of an MPI plugin", _mpi_name)
PLUGIN_DIRS = Parser("absolute paths, as a list or with ':' between them", _plugin_dirs)

PLUGINS = section(
    "plugins",
    Key(
        "plugin_dir", PLUGIN_DIRS, (BUILTIN_DIR,),
        "Directories in which plugins are looked for, in this order; nodectl's own comes last.",
        shown="nodectl's own plugins only",
    ),
    Key(
        "task_plugin", plugin_types("task"), ("task/cgroup", "task/affinity"),
        "Task plugins, in the order in which they are called.",
    ),
    Key(
        "proctrack_type", plugin_type("proctrack"), "proctrack/cgroup",
        "Plugin that follows and kills the processes of a step.",
    ),
    Key(
        "job_container_type", plugin_type("job_container"), "job_container/none",
        "Plugin that gives each job what of the machine it has to itself.",
    ),
    Key(
        "mpi_plugin", plugin_types("mpi"), _MPI,
        "MPI plugins that a step can have, by `--mpi`.",
    ),
    Key(
        "mpi_default", MPI_DEFAULT, "auto",
        "The one of a step without `--mpi`: none, pmi2, pmix, or another of mpi_plugin; auto: what suits the MPI "
        "library that the program is linked to, none where it is linked to none.",
    ),
)  # fmt: skip
