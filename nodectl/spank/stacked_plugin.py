"""A SPANK plugin with a place in a stack, and the plugin's options."""

from nodectl import messages
from nodectl.spank import spank_h
from nodectl.spank.spank_h import SpankError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.plugstack_entry import Entry
    from nodectl.spank.native import NativePlugin
    from nodectl.spank.python_plugin import PythonPlugin
    from nodectl.spank.spank_h import SpankOption

_HAS_ARG = (0, 1, 2)


class StackedPlugin:
    """A loaded plugin with a place in a stack: plugstack line, offered options in order, given arguments."""

    __slots__ = ("entry", "given", "options", "place", "plugin")

    def __init__(self, entry: "Entry", plugin: "PythonPlugin | NativePlugin", place: int) -> None:
        self.entry = entry
        self.plugin = plugin
        self.place = place
        self.options: dict[str, SpankOption] = {}
        self.given: dict[str, str | None] = {}

    def offer(self, option: "SpankOption") -> None:
        """Add an option. Raises SpankError for an invalid option."""
        if not option.name or not option.usage or option.has_arg not in _HAS_ARG:
            raise SpankError(spank_h.ESPANK_BAD_ARG, f"option {option.name!r}")
        if len(option.name) > spank_h.SPANK_OPTION_MAXLEN:
            raise SpankError(spank_h.ESPANK_NOSPACE, option.name)
        if option.name in self.options:
            messages.info(f'option "{option.name}" provided twice by plugin {self.plugin.name}')
        self.options.setdefault(option.name, option)

    def offer_table(self) -> None:
        """Add the options of the plugin's table; report and skip invalid options."""
        for option in self.plugin.options:
            try:
                self.offer(option)
            except SpankError as error:
                messages.error(f"plugin {self.plugin.name}: spank_options: {error}")
