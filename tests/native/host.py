"""Compiling plugins, and running them in a process of their own: `driver.py`, with the host preloaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nodectl
from nodectl.spank import S_CTX_REMOTE, _spank_host

SOURCES = Path(__file__).parent / "sources"
DRIVER = Path(__file__).parent / "driver.py"
INCLUDE = Path(str(nodectl.__file__)).parent / "include"
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wmissing-prototypes", "-Wwrite-strings")


def compiled(
    into: Path, source: str, *options: str, name: str = "", include: Path = INCLUDE, strict: Sequence[str] = STRICT
) -> str:
    """The plugin of `sources/<source>.c`, as `into`/<name>.so. `options` come last, libraries among them."""
    target = into / f"{name or source}.so"
    command = ["cc", "-std=c99", "-D_GNU_SOURCE", *strict, "-O1", "-shared", "-fPIC", f"-I{include}", "-o", str(target)]
    subprocess.run([*command, str(SOURCES / f"{source}.c"), *options], check=True)
    return str(target)


def run(
    plugins: str | list[str],
    *hooks: str,
    argv: Sequence[str] = (),
    context: int = S_CTX_REMOTE,
    job: bool = True,
    level: int = 2,
    timeout: float = 0,
    options: Sequence[Sequence[str]] = (),
    memory: bool = False,
    program: Sequence[str] = ("/bin/true", "one"),
    preload: bool = True,
) -> subprocess.CompletedProcess[str]:
    """What `driver.py` prints for the hooks, each a name or name@task; standard error apart."""
    case = {
        "plugins": [plugins] if isinstance(plugins, str) else plugins,
        "hooks": hooks,
        "argv": argv,
        "context": context,
        "job": job,
        "level": level,
        "timeout": timeout,
        "options": options,
        "program": program,
    }
    environment = {"PATH": os.environ["PATH"]} | ({"LD_PRELOAD": _spank_host.__file__} if preload else {})
    command = [sys.executable, "-P", str(DRIVER), json.dumps(case), *(["memory"] if memory else [])]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, errors="replace", check=False, timeout=60
    )


def lines(result: subprocess.CompletedProcess[str]) -> list[str]:
    """What a run that came to its end printed, without the driver's last line; nothing on standard error."""
    assert (result.returncode, result.stderr) == (0, "")
    *printed, environment = [line for line in result.stdout.splitlines() if not line.startswith("FROM_C")]
    assert environment.startswith("environment ")
    return printed
