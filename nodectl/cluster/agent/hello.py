"""What a command is told before it reads its options, as the node's daemon would: here without asking it, since every
command asks for that first.
"""

from collections.abc import Mapping

from nodectl import __version__
from nodectl.client.command import Failed
from nodectl.config import ConfigError, own_node
from nodectl.config_file.reader import load
from nodectl.model.plugstack_entry import entry_as_list
from nodectl.spank import plugstack
from nodectl.wire.dispatch import Refused

_ENTRY = ("path", "argv", "required", "origin", "missing")


class Hello:
    """Of the node of this name, in a cluster of `nodes`. plugstack.conf is as it is at each call."""

    def __init__(self, node: str, job: int, nodes: int) -> None:
        try:
            self._config = load(own_node.configuration(), must_exist=False)
        except ConfigError as error:
            raise Failed(str(error)) from None
        self._known: plugstack.Plugstack | None = None
        self._about = {
            "version": __version__,
            "node": node,
            "hook_timeout": self._config.spank_hook_timeout,
            "spank_versions": self._config.spank_versions,
            "cluster": {"job": job, "nodes": nodes},
        }

    def answer(self) -> Mapping[str, object]:
        """Raises Refused."""
        if self._known is None or not self._known.is_current():
            try:
                self._known = plugstack.read(self._config.plugstack_config, self._config.plugin_dir)
            except plugstack.PlugstackError as error:
                self._known = None
                raise Refused("LaunchRefused", str(error), exit_status=1) from None
        stack = self._known
        entries = [dict(zip(_ENTRY, entry_as_list(entry), strict=True)) for entry in stack.entries]
        return {**self._about, "stack": entries, "warnings": list(stack.warnings)}
