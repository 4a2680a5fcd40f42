"""The configuration's keys about the plugins of the node: where they are, and which."""

from __future__ import annotations

from nodectl.config.key import Key, section
from nodectl.config.values import Parser, absolute, is_plain, split_words, string
from nodectl.plugin_host import BUILTIN_DIR


def _plugin_dirs(value: object) -> tuple[str, ...]:
    """The site's directories and then the built-in one, so that a site's plugin replaces a
    built-in."""
    dirs = [absolute(word) for word in split_words(value, ":")]
    return (*(path for path in dict.fromkeys(dirs) if path != BUILTIN_DIR), BUILTIN_DIR)


def _plugin_type(word: str, major: str) -> str:
    start, _, minor = word.partition("/")
    if start != major or not is_plain(minor, "_"):
        raise ValueError(f"has {word!r}")
    return word


def _task_plugins(value: object) -> tuple[str, ...]:
    words = tuple(_plugin_type(word, "task") for word in split_words(value, ","))
    if len(set(words)) != len(words):
        raise ValueError("names a plugin twice")
    return words


def _proctrack(value: object) -> str:
    return _plugin_type(string(value), "proctrack")


def _job_container(value: object) -> str:
    return _plugin_type(string(value), "job_container")


PLUGIN_DIRS = Parser("absolute paths, as a list or with ':' between them", _plugin_dirs)
TASK_PLUGINS = Parser("types that begin with 'task/', each once, as a list or with ',' between them", _task_plugins)
PROCTRACK = Parser("one type that begins with 'proctrack/'", _proctrack)
JOB_CONTAINER = Parser("one type that begins with 'job_container/'", _job_container)

PLUGINS = section(
    "plugins",
    Key(
        "plugin_dir", PLUGIN_DIRS, (BUILTIN_DIR,),
        "Directories in which plugins are looked for, in this order; nodectl's own comes last.",
        shown="nodectl's own plugins only",
    ),
    Key(
        "task_plugin", TASK_PLUGINS, ("task/cgroup", "task/affinity"),
        "Task plugins, in the order in which they are called.",
    ),
    Key(
        "proctrack_type", PROCTRACK, "proctrack/cgroup",
        "Plugin that follows and kills the processes of a step.",
    ),
    Key(
        "job_container_type", JOB_CONTAINER, "job_container/none",
        "Plugin that gives each job what of the machine it has to itself.",
    ),
)  # fmt: skip
