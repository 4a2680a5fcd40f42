"""`nodectl spank try` at a terminal tells what it is doing, as long as that takes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rootful.at_terminal import at_terminal
from rootful.spank_try import PYTHON, SpankTry

CODE = (
    "import sys; from nodectl.lab import progress_line; progress_line._FIRST = 0.0;"
    "from nodectl.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


def test_at_a_terminal_it_tells_what_is_tried() -> None:
    with tempfile.TemporaryDirectory(prefix="nodectl-test-", dir="/run") as name:  # root loads plugins from there
        plugin, go = SpankTry(Path(name)).plugin(PYTHON), Path(name) / "go"
        wait = f"until [ -e {go} ]; do sleep 0.1; done"
        words = ["spank", "try", str(plugin), "--", "sh", "-c", wait]
        with at_terminal([sys.executable, "-P", "-c", CODE, *words]) as shown:
            shown.wait_for(r"trying the step: \d+ calls so far")
            go.touch()
            shown.wait_for("every hook succeeded")
