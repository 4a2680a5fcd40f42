"""Hello and Config: information about the node."""

from collections.abc import Mapping

from nodectl import __version__
from nodectl.model.config import Config
from nodectl.model.wire.dispatch import Call
from nodectl.spank.current_plugstack import CurrentPlugstack


class About:
    """The Hello and Config methods of the node. `config` is set anew when the node reads the configuration again."""

    def __init__(self, config: Config, plugstack: CurrentPlugstack) -> None:
        self.config = config
        self._plugstack = plugstack

    def hello(self, call: Call) -> Mapping[str, object]:
        """Return everything a client needs before a launch: above all, the plugins whose options it accepts."""
        return {
            "version": __version__,
            "node": self.config.node_name,
            **self._plugstack.told(),
            "hook_timeout": self.config.spank_hook_timeout,
            "spank_versions": self.config.spank_versions,
        }

    def show_config(self, call: Call) -> Mapping[str, object]:
        """Return the configuration in force."""
        return {"config": {name: list(v) if isinstance(v, tuple) else v for name, v in self.config}}
