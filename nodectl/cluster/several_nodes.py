"""What commands of the core ask of a cluster, as `nodectl.cli.several_nodes.SeveralNodes`.

Runs in the command, as its user. Each function imports what it needs, because a command calls one of them at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodectl.client.run_options import RunParser
    from nodectl.client.session import Session


def begin(words: Sequence[str], parser: type[RunParser], **how: Any) -> None:
    """Start the cluster of the allocation if the command needs a cluster. Raises Failed, BadOption."""
    from nodectl.cluster.start import first_run

    first_run.begin(words, parser, **how)


def send(session: Session, nodes: int, source: int, path: str, names: Mapping[str, Any]) -> int:
    """Write a file on all nodes. Return 0, or 1 with a line on stderr for each node without the file. Raises Failed."""
    from nodectl.cluster.bcast import sender

    return sender.send(session, nodes, source, path, names)


def replace(gateway: str, nodes: int, path: str, target: str) -> None:
    """Write a file on all nodes over any existing file. Raises Failed."""
    from nodectl.cluster.bcast import sender

    sender.replace(gateway, nodes, path, target)
