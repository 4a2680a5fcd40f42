"""The answer to Hello, which a command needs before reading options, given here without asking the node's daemon.

Every command asks for it first.
"""

from collections.abc import Mapping

from nodectl import __version__
from nodectl.model.config import Config
from nodectl.model.plugstack_entry import entry_as_list
from nodectl.model.wire.dispatch import Refused
from nodectl.spank import plugstack

_ENTRY = ("path", "argv", "required", "origin", "missing")


class Hello:
    """The answer of this node, in a cluster of `nodes`.

    plugstack.conf is read anew after a change. `config`: of the daemon that runs the steps here, the user's own node or
    the service.
    """

    def __init__(self, node: str, job: int, nodes: int, config: Config) -> None:
        self._config = config
        self.level = config.secure  # for steps that ask for none
        self._known: plugstack.Plugstack | None = None
        self._about = {
            "version": __version__,
            "node": node,
            "hook_timeout": self._config.spank_hook_timeout,
            "spank_versions": self._config.spank_versions,
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
        if self._known is None or not self._known.is_current():
            try:
                self._known = plugstack.read(self._config.plugstack_config, self._config.plugin_dir)
            except plugstack.PlugstackError as error:
                self._known = None
                raise Refused("LaunchRefused", str(error), exit_status=1) from None
        stack = self._known
        entries = [dict(zip(_ENTRY, entry_as_list(entry), strict=True)) for entry in stack.entries]
        return {**self._about, "cluster": {**self._cluster}, "stack": entries, "warnings": list(stack.warnings)}
