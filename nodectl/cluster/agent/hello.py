"""The answer to Hello, which a command needs before reading options, given here without asking the node's daemon.

Every command asks for it first.
"""

from collections.abc import Mapping

from nodectl import __version__
from nodectl.model.config import Config
from nodectl.spank.current_plugstack import CurrentPlugstack


class Hello:
    """The answer of this node, in a cluster of `nodes`.

    plugstack.conf is read anew after a change. `config`: of the daemon that runs the steps here, the user's own node or
    the service.
    """

    def __init__(self, node: str, job: int, nodes: int, config: Config) -> None:
        self.level = config.secure  # for steps that ask for none
        self._plugstack = CurrentPlugstack(config)
        self._about = {
            "version": __version__,
            "node": node,
            "hook_timeout": config.spank_hook_timeout,
            "spank_versions": config.spank_versions,
        }
        self._cluster = {"job": job, "nodes": nodes}
        self._lost: set[int] = set()

    def lost(self, rank: int) -> None:
        """Count a lost node; guests do not count."""
        if rank < self._cluster["nodes"]:
            self._lost.add(rank)
            self._cluster["lost"] = len(self._lost)

    def answer(self) -> Mapping[str, object]:
        """Return the answer. Raises Refused."""
        return {**self._about, "cluster": {**self._cluster}, **self._plugstack.told()}
