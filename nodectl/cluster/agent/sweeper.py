"""The removal of an agent's directory after all processes of the agent were killed at once.

The holder starts the sweeper on each node, in the same way as the agents; the agents' standard input stays open
meanwhile.
"""

import os
import sys

from nodectl.client.command import Failed
from nodectl.cluster.agent import directory, place
from nodectl.kernel import signals


def main() -> int:
    """Wait for the end of the processes there, then remove the directory; return the exit status.

    Signals are put off, since the job may be about to end.
    """
    signals.put_off()
    try:
        directory.take(place.of(os.environ).directory).remove()
    except Failed as failed:
        print(f"nodectl: what an agent has left: {failed}", file=sys.stderr)
        return 1
    return 0
