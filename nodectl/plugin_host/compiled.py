"""Node plugins that are shared objects: which kinds may be, and what the processes see of one that do not load it.

Of the interfaces that the node hosts, only job_container's functions take numbers and nothing else. They are called in
processes that the forkserver forks, so the forkserver loads the library (`nodectl/spank/container_plugin.py`); the
daemon must not die with it, and only reads which names occur in the file.
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
    """One that is a shared object; its attributes are those of every plugin, and it has no module."""

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
    """True for the file of a shared object."""
    return path.endswith(SUFFIX)


def type_of(path: str) -> str:
    """What a plugin in this file has to call itself: job_container/mine for .../job_container/mine.so."""
    folder, _, name = path.rpartition("/")
    return f"{os.path.basename(folder)}/{name.removesuffix(SUFFIX)}"


def checked(path: str) -> None:
    """Raises PluginRefused for a file that others than root could change, where the effective user is root."""
    try:
        trust.check(path)
    except trust.Untrusted as error:
        raise PluginRefused(path, None, f"not trusted: {error}") from error
    except OSError as error:
        raise PluginRefused(path, None, f"cannot be read: {error.strerror}") from error


def described(path: str) -> CompiledPlugin:
    """The plugin as its file shows it; nothing of it is loaded, and its functions cannot be called. A name that occurs
    for another reason counts as a function. Raises PluginRefused.
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
