"""The plugstack.conf at each launch: read again when a file has changed."""

from nodectl.model.config import Config
from nodectl.model.plugstack_entry import entry_as_list
from nodectl.model.wire.dispatch import Refused
from nodectl.spank import plugstack

_ENTRY = ("path", "argv", "required", "origin", "missing")


class CurrentPlugstack:
    """The plugstack of the node."""

    def __init__(self, config: Config) -> None:
        self._path = config.plugstack_config
        self._plugin_dir = config.plugin_dir
        self._known: plugstack.Plugstack | None = None

    def get(self) -> plugstack.Plugstack:
        """Return the current plugstack. Raises Refused."""
        if self._known is None or not self._known.is_current():
            try:
                self._known = plugstack.read(self._path, self._plugin_dir)
            except plugstack.PlugstackError as error:
                self._known = None
                raise Refused("LaunchRefused", str(error), exit_status=1) from None
        return self._known

    def told(self) -> dict[str, object]:
        """Return the plugins and the warnings, for the reply to Hello. Raises Refused."""
        stack = self.get()
        entries = [dict(zip(_ENTRY, entry_as_list(entry), strict=True)) for entry in stack.entries]
        return {"stack": entries, "warnings": list(stack.warnings)}
