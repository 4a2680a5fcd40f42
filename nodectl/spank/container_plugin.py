"""Compiled job_container plugins: the document's functions in a shared object, loaded by the host of SPANK plugins.

The forkserver loads a plugin once; stepds, tasks and the processes of container requests, all forked from the
forkserver, call its functions. The functions take and return numbers, so they depend on no release of Slurm.
"""

from nodectl.plugin_host.compiled import CompiledPlugin, checked, type_of
from nodectl.plugin_host.kinds import KINDS
from nodectl.plugin_host.loader import LIFE, PluginRefused
from nodectl.plugin_host.version import differs, read_version


def open_container(path: str) -> CompiledPlugin:
    """Load the library at `path`; only its constructors run. Raises PluginRefused."""
    checked(path)
    from nodectl.spank import _spank_host  # only where a compiled plugin is configured

    try:
        library = _spank_host.open(path)
    except OSError as error:
        raise PluginRefused(path, None, (error.strerror or "").removeprefix(f"{path}: ")) from error
    if library.name is None or library.type is None or library.version is None:
        found = {"plugin_name": library.name, "plugin_type": library.type, "plugin_version": library.version}
        absent = ", ".join(symbol for symbol, value in found.items() if value is None)
        raise PluginRefused(path, None, f"without the symbol {absent}")
    if library.type != type_of(path):
        raise PluginRefused(path, None, f"plugin_type is {library.type!r}; {type_of(path)!r} was asked for")
    kind = KINDS["job_container"]
    try:
        version = read_version(library.version, kind)
    except ValueError as error:
        raise PluginRefused(path, None, str(error)) from None
    if wrong := differs(version, kind):
        raise PluginRefused(path, None, wrong)
    if not library.container.keys() - LIFE.keys():
        raise PluginRefused(path, None, "job_container plugin without any container_p function")
    return CompiledPlugin(path, library.name, version, library.container)
