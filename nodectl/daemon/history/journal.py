"""One line in the daemon's log for each step that has ended: what no later step flushes away, as it does in a history.

Names are a user's words, so they are written as JSON: one line, ASCII.
"""

import sys
from collections.abc import Mapping

from nodectl.wire.lean_json import dumps

_TOLD = ("uid", "user", "name", "state", "exit_status", "ntasks", "submitted", "started", "ended")
_LONGEST = 64


def tell(record: Mapping[str, object]) -> None:
    """Writes the line. A log that is not there costs nothing else."""
    facts = {name: record.get(name) for name in _TOLD}
    facts["name"] = str(facts["name"])[:_LONGEST]
    words = (f"{name}={dumps(value)}" for name, value in facts.items())
    try:
        print(f"nodectl daemon: ended step={record['job']}.{record['step']}", *words, file=sys.stderr, flush=True)
    except OSError:
        return
