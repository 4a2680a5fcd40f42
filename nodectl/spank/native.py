"""SPANK plugins that are compiled: unmodified `.so` files, built against nodectl's slurm/spank.h or Slurm's own.

`open_native` loads the library and checks what it says about itself; the forkserver does it once, before any step, so
that a stepd pays nothing for it. `init` is called by the stack.

A library stays loaded for the life of its process and has one state there, also where two lines of plugstack.conf
name it, as in Slurm. Whoever opens one must have been executed with the host preloaded (`preload.py`).
"""

from nodectl import _spank_host, trust
from nodectl.hooks import functions
from nodectl.plugin import PluginRefused
from nodectl.spank import SLURM_VERSION, SpankOption


class NativeSource:
    """A compiled plugin that was loaded and passed every check, and what a stack holds of it: the same for each line
    that names it. `missing`: functions that it calls and nobody has.
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
    """A compiled plugin in a stack; the attributes are those of `nodectl.plugin.Plugin`."""

    __slots__ = ("hooks", "init_failure_mode", "name", "options", "path", "type", "version")

    def __init__(self, source: NativeSource, library: "_spank_host.Library") -> None:
        self.path = source.path
        self.name = source.name
        self.type = source.type
        self.version = source.version
        self.hooks = dict(library.hooks)
        self.init_failure_mode = library.init_failure_mode or 0
        self.options = [
            SpankOption(name, arginfo, usage or "", has_arg, val, cb)
            for name, arginfo, usage, has_arg, val, cb in library.options
        ]


def open_native(path: str) -> NativeSource:
    """Loads the library at `path`; its constructors run, none of its hooks.

    Raises PluginRefused for a file that others than root could change (where the effective user is root), that
    dlopen(3) refuses, or that Slurm would refuse for what it says about itself.
    """
    try:
        trust.check(path)
    except trust.Untrusted as error:
        raise PluginRefused(path, None, f"not trusted: {error}") from error
    except OSError as error:
        raise PluginRefused(path, None, f"cannot be read: {error.strerror}") from error
    try:
        library = _spank_host.open(path)
    except OSError as error:
        raise PluginRefused(path, None, (error.strerror or "").removeprefix(f"{path}: ")) from error
    return _checked(library)


def _checked(library: "_spank_host.Library") -> NativeSource:
    """The rules of Slurm 22.05: any type will do, and only the type "spank" forgives another bug-fix release."""
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
    compared = 2 if library.type == "spank" else 3
    if version[:compared] != SLURM_VERSION[:compared]:
        wanted = ".".join(f"{part:02d}" for part in SLURM_VERSION[:compared])
        said = f"{version[0]}.{version[1]:02d}.{version[2]}"
        raise PluginRefused(path, None, f"built for version {said}; this is {wanted}")
    if not any(hook in functions("spank") for hook in library.hooks):
        raise PluginRefused(path, None, "spank plugin without any slurm_spank function")
    return NativeSource(library, library.name, library.type, version)
