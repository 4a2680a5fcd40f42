"""Hello and Config: what the node says about itself."""

from collections.abc import Mapping

from nodectl import __version__
from nodectl.config import Config
from nodectl.daemon.admission.current_plugstack import CurrentPlugstack
from nodectl.model.plugstack_entry import entry_as_list
from nodectl.wire.dispatch import Call

_ENTRY = ("path", "argv", "required", "origin", "missing")


class About:
    """The methods of one node. `config` is set anew when the node reads its configuration again."""

    def __init__(self, config: Config, plugstack: CurrentPlugstack) -> None:
        self.config = config
        self._plugstack = plugstack

    def hello(self, call: Call) -> Mapping[str, object]:
        """What a client needs before it can ask for a launch: above all, the plugins whose options it takes."""
        del call
        stack = self._plugstack.get()
        return {
            "version": __version__,
            "node": self.config.node_name,
            "stack": [dict(zip(_ENTRY, entry_as_list(entry), strict=True)) for entry in stack.entries],
            "warnings": list(stack.warnings),
            "hook_timeout": self.config.spank_hook_timeout,
            "spank_versions": self.config.spank_versions,
        }

    def show_config(self, call: Call) -> Mapping[str, object]:
        """The configuration in force."""
        del call
        return {"config": {name: list(v) if isinstance(v, tuple) else v for name, v in self.config}}
