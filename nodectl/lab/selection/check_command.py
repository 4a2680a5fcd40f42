"""`nodectl select check`: find the faults of a select plugin by reading and loading the file and by `questions`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodectl.client.command import Failed, complain
from nodectl.client.configuration import configured
from nodectl.client.render.table import pairs
from nodectl.client.render.terminal import put, wants_colour
from nodectl.lab.selection import questions
from nodectl.model.words import printable
from nodectl.plugin_host import BUILTIN_DIR, plugin_facts
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import PluginRefused, find
from nodectl.selection.answers import SelectionFailed
from nodectl.spank.inspection.findings import ERROR, WARNING

_COLOURS = {ERROR: "1;31", WARNING: "33"}


@dataclass(slots=True)
class Examined:
    """An examined plugin: the facts of the file, and the findings.

    `absent`: documented functions without definition.
    """

    path: str
    facts: plugin_facts.Facts
    absent: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)
    findings: list[tuple[str, str]] = field(default_factory=list)

    @property
    def has_errors(self) -> bool:
        """True if nodectl would refuse the plugin, or reject answers of the plugin."""
        return any(level == ERROR for level, _ in self.findings)


def main(arguments: argparse.Namespace) -> int:
    """Print the findings. Return 0, 1 if a plugin has errors, 2 if a file cannot be read."""
    found: list[Examined] = []
    status = 0
    for word in arguments.plugins:
        try:
            found.append(examine(located(word, arguments.settings.config), static=arguments.static))
        except PluginRefused as refused:
            complain(str(refused))
            status = 2
        except OSError as error:
            complain(f"{word}: cannot be read: {error.strerror}")
            status = 2
    if arguments.json:
        print(json.dumps({"plugins": [as_json(one) for one in found]}, indent=2))
    else:
        for place, one in enumerate(found):
            put([""] * (place > 0) + text(one, colour=wants_colour()))
    return status or int(any(one.has_errors for one in found))


def located(word: str, config_path: str | None) -> str:
    """Return the plugin's file: `word` itself, or the file of the type `word`. Raises PluginRefused."""
    if word.endswith(".py") or os.path.isfile(word):
        return word
    try:
        directories = configured(config_path).plugin_dir
    except Failed:
        directories = ()  # `nodectl config` reports the error
    return find(word, (*directories, BUILTIN_DIR))


def examine(path: str, *, static: bool = False) -> Examined:
    """Read the file and, without `static`, load the plugin and ask all questions. Raises OSError."""
    with open(path, "rb") as file:
        source = file.read()
    facts = plugin_facts.of_text(path, source, "select")
    one = Examined(path, facts, tuple(name for name in KINDS["select"].functions if name not in facts.hooks))
    one.findings += [(ERROR, problem) for problem in facts.problems]
    one.findings += [(WARNING, warning) for warning in facts.warnings]
    if not static and not one.has_errors:
        try:
            _ask(one)
        except (PluginRefused, SelectionFailed) as refused:
            one.findings.append((ERROR, str(refused)))
    return one


def _ask(one: Examined) -> None:
    """Ask the plugin all questions; record each finding once."""
    for question in questions.QUESTIONS:
        one.asked.append(_title(question.__doc__))
        for finding in questions.asked(one.path, question):
            if finding not in one.findings:
                one.findings.append(finding)
    one.asked.append(_title(questions.restart.__doc__))
    one.findings += [finding for finding in questions.restart(one.path) if finding not in one.findings]


def _title(doc: str | None) -> str:
    return (doc or "").partition("\n")[0].partition(" Raises")[0]


def as_json(one: Examined) -> Mapping[str, Any]:
    """Return the findings as values for JSON."""
    return {
        "path": one.path,
        "type": one.facts.type,
        "name": one.facts.name,
        "version": list(one.facts.version),
        "about": one.facts.about,
        "functions": list(one.facts.hooks),
        "absent": list(one.absent),
        "asked": one.asked,
        "findings": [{"level": level, "text": words} for level, words in one.findings],
    }


def text(one: Examined, *, colour: bool) -> list[str]:
    """Return the findings as lines for the terminal."""
    about = f": {printable(one.facts.about)}" if one.facts.about else ""
    return [
        printable(one.path) + about,
        *(f"  {line}" for line in pairs(_rows(one))),
        *(f"  {_painted(level, words, colour)}" for level, words in one.findings),
        *([] if one.findings else ["  no errors, no warnings"]),
    ]


def _rows(one: Examined) -> Iterator[tuple[str, str]]:
    if one.facts.type:
        yield "type", one.facts.type
    if one.facts.name:
        yield "name", one.facts.name
    if one.facts.version:
        yield "version", ".".join(map(str, one.facts.version))
    prefix = KINDS["select"].prefix
    yield "functions", " ".join(name.removeprefix(prefix) for name in one.facts.hooks) or "none"
    if one.absent:
        yield "left out", " ".join(name.removeprefix(prefix) for name in one.absent)
    for words in one.asked:
        yield "asked", words


def _painted(level: str, words: str, colour: bool) -> str:
    shown = f"\x1b[{_COLOURS[level]}m{level}\x1b[0m" if colour else level
    return f"{shown}: {printable(words)}"
