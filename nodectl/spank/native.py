"""Compiled SPANK plugins: unmodified `.so` files, built against nodectl's slurm/spank.h or Slurm's.

`open_native` loads the library and checks its symbols; the forkserver does it once, before any step, so a stepd pays
nothing for it. The stack calls `init`.

A library stays loaded for the life of its process and has one state there, also where two lines of plugstack.conf name
it, as in Slurm. A process that opens a library must have been executed with the host preloaded (`preload.py`).
"""

from nodectl.plugin_host.compiled import checked
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import PluginRefused
from nodectl.spank import _spank_host, versions
from nodectl.spank.spank_h import SLURM_VERSION, SpankOption


class NativeSource:
    """A loaded and checked compiled plugin, shared by all lines of plugstack.conf with the same path.

    `missing`: functions that the plugin calls and no library defines.
    """

    __slots__ = ("missing", "name", "path", "plugin", "type", "version")

    def __init__(self, library: "_spank_host.Library", name: str, kind: str, version: tuple[int, int, int]) -> None:
        self.path = library.path
        self.name = name
        self.type = kind
        self.version = version
        self.missing = library.missing
        self.plugin = NativePlugin(self, library)


class NativePlugin:
    """A compiled plugin in a stack, with the attributes of `PythonPlugin`."""

    __slots__ = ("_init_failure_mode", "hooks", "name", "options", "path", "type", "version")

    warnings = ()

    def __init__(self, source: NativeSource, library: "_spank_host.Library") -> None:
        self.path = source.path
        self.name = source.name
        self.type = source.type
        self.version = source.version
        self.hooks = dict(library.hooks)
        self._init_failure_mode = library.init_failure_mode
        self.options = [
            SpankOption(name, arginfo, usage or "", has_arg, val, cb)
            for name, arginfo, usage, has_arg, val, cb in library.options
        ]

    @property
    def init_failure_mode(self) -> int:
        """The current failure mode; a plugin may set the mode in slurm_spank_init."""
        return self._init_failure_mode() if self._init_failure_mode is not None else 0


def open_native(path: str) -> NativeSource:
    """Load the library at `path`; the library's constructors run, but no hooks.

    Raises PluginRefused for a file that a user other than root could change (where the effective user is root), that
    dlopen(3) refuses, or that Slurm would refuse for its symbols.
    """
    checked(path)
    try:
        library = _spank_host.open(path)
    except OSError as error:
        raise PluginRefused(path, None, (error.strerror or "").removeprefix(f"{path}: ")) from error
    return _checked(library)


def _checked(library: "_spank_host.Library") -> NativeSource:
    """Check the library's symbols by Slurm's rules and the configured releases. Raises PluginRefused.

    Every type is allowed, but only a plugin of the type "spank" may have another version than ours.
    """
    path = library.path
    if library.name is None or library.type is None or library.version is None:
        absent = [
            f"plugin_{word}"
            for word, value in (("name", library.name), ("type", library.type), ("version", library.version))
            if value is None
        ]
        raise PluginRefused(path, None, f"without the symbol {', '.join(absent)}")
    number = library.version
    version = (number >> 16, number >> 8 & 0xFF, number & 0xFF)
    said = f"{version[0]}.{version[1]:02d}.{version[2]}"
    if not versions.is_accepted(version):
        raise PluginRefused(path, None, f"built for Slurm {said}; spank_versions has {versions.accepted()}")
    if library.type != "spank" and version != SLURM_VERSION:
        raise PluginRefused(path, None, f"of the type {library.type!r} and built for version {said}; this is 22.05.8")
    if not any(hook in KINDS["spank"].functions for hook in library.hooks):
        raise PluginRefused(path, None, "spank plugin without any slurm_spank function")
    return NativeSource(library, library.name, library.type, version)
