"""Node plugins as shared objects: the allowed kinds, and the view of processes that do not load the plugin.

Of the interfaces that the node hosts, only job_container's functions take numbers and nothing else. Processes that the
forkserver forks call them, so the forkserver loads the library (`nodectl/spank/container_plugin.py`). The daemon must
not die with the library, and only reads which names occur in the file.
"""

from __future__ import annotations

import os
import types

from nodectl.kernel import trust
from nodectl.messages import printable
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import LIFE, Plugin, PluginRefused, titled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Open = Callable[[str], "Plugin"]

SUFFIX = ".so"
_LONGEST = 256 << 20
_NAME = rb"(?<![a-z_])container_p_[a-z_]+(?![a-z_])"


class CompiledPlugin(Plugin):
    """A plugin as a shared object, with the attributes of every plugin and an empty module."""

    __slots__ = ()

    def __init__(
        self, path: str, name: str, version: tuple[int, ...], hooks: Mapping[str, Callable[..., object]]
    ) -> None:
        self.path = path
        self.type = type_of(path)
        self.name = name
        self.title = titled(self.type, printable(name))
        self.version = version
        self.hooks = dict(hooks)  # type: ignore[arg-type]  # callables of C
        self.warnings = []
        self.module = types.ModuleType(self.type)


def is_compiled(path: str) -> bool:
    """Return True for the file of a shared object."""
    return path.endswith(SUFFIX)


def type_of(path: str) -> str:
    """Return the plugin type required in this file: job_container/mine for .../job_container/mine.so."""
    folder, _, name = path.rpartition("/")
    return f"{os.path.basename(folder)}/{name.removesuffix(SUFFIX)}"


def checked(path: str) -> None:
    """Raise PluginRefused for a file open to changes by users other than root, where the effective user is root."""
    try:
        trust.check(path)
    except trust.Untrusted as error:
        raise PluginRefused(path, None, f"not trusted: {error}") from error
    except OSError as error:
        raise PluginRefused(path, None, f"cannot be read: {error.strerror}") from error


def described(path: str) -> CompiledPlugin:
    """Return the plugin as read from its file, without loading it; its functions cannot be called. Raises
    PluginRefused.

    A name that occurs in the file for another reason counts as a function.
    """
    import re  # the forkserver, which calls other functions of this module, does not pay for it

    checked(path)
    try:
        with open(path, "rb") as file:
            mentioned = {name.decode("ascii") for name in re.findall(_NAME, file.read(_LONGEST))}
    except OSError as error:
        raise PluginRefused(path, None, f"cannot be read: {error.strerror}") from error
    kind = KINDS[type_of(path).partition("/")[0]]
    return CompiledPlugin(path, "", (), dict.fromkeys(mentioned & kind.functions.keys() - LIFE.keys(), _elsewhere))


def _elsewhere(*_: object) -> int:
    raise RuntimeError("a compiled plugin's function is called in another process")
