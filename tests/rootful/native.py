"""Compiled plugins for a test's node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import nodectl
from rootful.node import Node

INCLUDE = Path(nodectl.__file__ or "").parent / "include"
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
    """Compiles a plugin from the bodies of its hooks (init="...") and puts it where its node looks: NAME.so."""
    source = node.dir / f"{name}.c"
    bodies = "".join(HOOK.format(hook=hook, body=body) for hook, body in hooks.items())
    source.write_text(HEAD.format(name=name) + text + bodies, encoding="utf-8")
    (node.plugins / "spank").mkdir(exist_ok=True)
    library = node.plugins / "spank" / f"{name}.so"
    made = node.dir / f"{name}.so.new"
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    subprocess.run(["cc", "-shared", "-fPIC", *warnings, f"-I{INCLUDE}", "-o", made, source], check=True)
    made.replace(library)
    return library
