"""The command line of an agent: what a node says on which the agent cannot run."""

from __future__ import annotations

import subprocess
import sys

from nodectl.cluster.engine import program


def said_without(module: str, **environment: str) -> str:
    *words, code = program.agent()
    line = [*words, f"import sys; sys.modules[{module!r}] = None; {code}"]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (127, "")
    return done.stdout


def test_python_without_tls_is_named() -> None:
    assert said_without("_ssl", SLURMD_NODENAME="n2") == (
        f"failed n2 nodes of a cluster speak TLS, and {sys.executable} there has no module ssl -> install a Python "
        "that was built with OpenSSL\n"
    )
    assert said_without("_ssl").startswith("failed - nodes of a cluster speak TLS")
