"""The file of a SPANK plugin: Python to be compiled, or a shared object to be opened.

Used by every process that loads a stack, and by the forkserver, which reads and opens the files for its stepds.
"""

from nodectl.plugin_host.loader import compile_plugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.plugin_host.loader import Source
    from nodectl.spank.native import NativeSource

    OpenSource = Callable[[str], "Source | NativeSource | DeferredSource"]


def is_native(path: str) -> bool:
    """Return True for a shared object: every file without the suffix .py."""
    return not path.endswith(".py")


class DeferredSource:
    """A native plugin for each stepd to open, because opening the plugin starts threads."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


def open_source(path: str) -> "Source | NativeSource":
    """Compile or open the plugin's file. Raises PluginRefused."""
    if not is_native(path):
        return compile_plugin(path)
    from nodectl.spank.native import open_native  # only where a native plugin is stacked

    return open_native(path)
