"""Compiled plugins for a test's node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import nodectl
import nodectl.plugins
from packages import unpacked
from rootful.node import Node

INCLUDE = Path(nodectl.__file__ or "").parent / "include"
SOURCES = Path(__file__).parents[1] / "native" / "plugins"
"""Plugins of our own in C: twins of those in plugins/spank."""
BUILT_IN = Path(nodectl.plugins.__path__[0]).resolve() / "spank"
TWINS = ["python", "c", pytest.param("c_slurms_header", marks=pytest.mark.packages)]
"""A plugin in Python, and its twin in C compiled with nodectl's header and with Slurm's own."""
HEAD = """
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <slurm/spank.h>
SPANK_PLUGIN({name}, 1);
"""
HOOK = """
int slurm_spank_{hook}(spank_t sp, int ac, char **av)
{{
    (void)sp; (void)ac; (void)av;
    {body}
    return 0;
}}
"""


def native(node: Node, name: str, text: str = "", **hooks: str) -> Path:
    """Compiles a plugin from the bodies of its hooks (init="...") and puts it where its node looks: NAME.so. What is
    there already is left alone.
    """
    source = node.dir / f"{name}.c"
    bodies = "".join(HOOK.format(hook=hook, body=body) for hook, body in hooks.items())
    whole = HEAD.format(name=name) + text + bodies
    library = node.plugins / "spank" / f"{name}.so"
    if library.exists() and source.exists() and source.read_text(encoding="utf-8") == whole:
        return library
    source.write_text(whole, encoding="utf-8")
    (node.plugins / "spank").mkdir(exist_ok=True)
    made = compiled(source, node.dir / f"{name}.so.new")
    made.replace(library)
    return library


def compiled(source: Path, library: Path, include: Path = INCLUDE) -> Path:
    """Compiles `source` to `library`; `include` holds slurm/spank.h."""
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    subprocess.run(["cc", "-shared", "-fPIC", *warnings, f"-I{include}", "-o", library, source], check=True)
    return library


def twin(node: Node, name: str, kind: str) -> Path:
    """One of the `TWINS` of a plugin of nodectl's: itself, or what its twin in C is compiled to, once for a node."""
    if kind == "python":
        return BUILT_IN / f"{name}.py"
    library = node.dir / f"{name}_{kind}.so"
    if not library.exists():
        compiled(SOURCES / f"{name}.c", library, INCLUDE if kind == "c" else unpacked().include())
    return library
