"""A SPANK plugin as a Python file, with options and a failure mode beside a plugin's usual attributes.

The command, each stepd and the daemon's processes for SPANK load it anew, with their own identity; tasks are forked
with the plugins of their stepd.
"""

from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import LIFE, Plugin, PluginRefused, load
from nodectl.spank.spank_h import SpankOption

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types

    from nodectl.plugin_host.loader import Source

_MODE = "slurm_spank_init_failure_mode"


class PythonPlugin(Plugin):
    """A SPANK plugin in Python; `options` is the plugin's table `spank_options`."""

    __slots__ = ("options",)

    def __init__(
        self,
        source: "Source",
        module: "types.ModuleType",
        version: "tuple[int, ...]",
        hooks: "dict[str, types.FunctionType]",
        warnings: "list[PluginRefused]",
    ) -> None:
        """Check the plugin's options and hooks. Raises PluginRefused."""
        mode = getattr(module, _MODE, 0)
        if type(mode) is not int:
            source.refuse(_MODE, f"{_MODE} is {mode!r}; a number is needed")
        table = getattr(module, "spank_options", ())
        if not isinstance(table, list | tuple) or not all(isinstance(option, SpankOption) for option in table):
            source.refuse("spank_options", "spank_options is no list of SpankOption")
        if hooks.keys() <= LIFE.keys():
            without = PluginRefused(source.path, None, "spank plugin without any slurm_spank function")
            raise warnings[0] if warnings else without
        super().__init__(source, module, version, hooks, warnings)
        self.options: list[SpankOption] = list(table)

    @property
    def init_failure_mode(self) -> int:
        """The result to report for a failed slurm_spank_init, or 0 for the real result.

        Read at the moment of the failure: the plugin may set it in that hook.
        """
        mode = getattr(self.module, _MODE, 0)
        return mode if isinstance(mode, int) else 0


def load_python(source: "Source") -> PythonPlugin:
    """Execute the plugin's body and check the plugin. Raises PluginRefused."""
    return load(source, KINDS["spank"], PythonPlugin)
