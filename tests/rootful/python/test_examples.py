"""The examples below docs/examples do what they say, as an ordinary user's programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, Node

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/examples"
SAYS = {
    "run_steps.py": """it says Linux in step {job}.0
step {next}.0: FAILED: task 0 ended with exit code 3 -> [3]
begun as True
asked to stop
CANCELLED
prepared by True
""",
    "many_at_once.py": """0 1 4 9 16 25 36 49
given up, and the step with it
the job cube ended with 27
""",
    "pool.py": """0 1 4 9 16 25 36 49
a worker died: True
the others go on: 144
the function ran for more than 0.2 s
""",
}


@pytest.mark.parametrize("name", SAYS)
def test_example_does_what_it_says(served: Node, name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    program = served.scratch / name
    program.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", str(program)],
        capture_output=True, text=True, check=False, timeout=2 * PATIENCE, cwd=served.scratch,
        env=served.environment({"NODECTL_CONFIG": str(served.config_path)}),
        user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[],
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    first = int(done.stdout.partition("in step ")[2].partition(".")[0] or 0)
    assert done.stdout == SAYS[name].format(job=first, next=first + 1)


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == SAYS.keys()
