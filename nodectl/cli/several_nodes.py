"""The module of a feature which runs commands over the nodes of an allocation: `run` and `bcast` ask for it."""

from nodectl.model import features

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Protocol

    from nodectl.client.run_options import RunParser
    from nodectl.client.session import Session

    class SeveralNodes(Protocol):
        """The functions of the module. Each raises Failed."""

        def begin(self, words: Sequence[str], parser: type[RunParser], **how: Any) -> None:
            """Start what the command needs on the other nodes, if the words ask for several. Raises BadOption."""

        def send(self, session: Session, nodes: int, source: int, path: str, names: Mapping[str, Any]) -> int:
            """Write a file on all nodes. Return the exit status of the command."""

        def replace(self, gateway: str, nodes: int, path: str, target: str) -> None:
            """Write a file on all nodes over any existing file. `gateway`: a socket of the cluster."""


def installed() -> "SeveralNodes | None":
    """Return the module, None if no installed feature has one."""
    names = (feature.several_nodes for feature in features.installed() if feature.several_nodes)
    return next((features.module(name) for name in names), None)


def needed() -> "SeveralNodes":
    """Return the module. Raises Failed."""
    found = installed()
    if found is None:
        from nodectl.client.command import Failed

        raise Failed(f"a command for several nodes: {features.is_missing('cluster')}")
    return found
