"""Removes an agent's directory from which its processes have been killed at once, so that none could do it.

Started by the holder on each node, as the agents were; their standard input stays open meanwhile.
"""

import os
import sys

from nodectl.client.command import Failed
from nodectl.cluster.agent import directory, place
from nodectl.kernel import signals


def main() -> int:
    """Waits until they have ended. The job may be about to end; this is what it leaves."""
    signals.put_off()
    try:
        directory.take(place.of(os.environ).directory).remove()
    except Failed as failed:
        print(f"nodectl: what an agent has left: {failed}", file=sys.stderr)
        return 1
    return 0
