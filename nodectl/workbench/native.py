"""What a compiled SPANK plugin's file says: see `inspection`."""

import importlib.util
import os

from nodectl.hooks import functions
from nodectl.spank import SLURM_VERSION
from nodectl.workbench import elf
from nodectl.workbench.findings import PREFIX, PRINTS, Inspection, Offered, misspelt
from nodectl.workbench.releases import release_of, spell, unpack

_FUNCTION = "STT_FUNC"
_OUTPUT = frozenset({"printf", "vprintf", "puts", "putchar", "__printf_chk", "__vprintf_chk"})
_LIBC = "libc.so.6"
# Empty libraries for plugins that are linked with a libslurm: what they call the host has.
_STAND_INS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "libslurm")
# Defined by the C start-up files or looked up by the dynamic linker itself.
_LINKERS = frozenset({"__tls_get_addr", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_guard"})


def read(path: str) -> Inspection:
    """Looks at the shared object. Raises OSError."""
    found = Inspection(path, "native")
    try:
        shared = elf.SharedObject(path)
    except elf.NoSharedObject as error:
        found.error(str(error))
        return found
    if elf.machine() and shared.machine != elf.machine():
        found.error(f"is made for {_machine(shared.machine)}; this machine is {_machine(elf.machine())}")
    found.name = shared.text("plugin_name") or ""
    found.type = shared.text("plugin_type") or ""
    found.bound = "now" if shared.bound_now else "lazily"
    _read_version(found, shared)
    _read_hooks(found, shared)
    found.options = [Offered(name, arginfo, usage, has_arg) for name, arginfo, usage, has_arg, _ in _table(shared)]
    if "spank_options" in shared.exported and not shared.ends("spank_options"):
        found.error("the table spank_options does not end with a row of zeros (SPANK_OPTIONS_TABLE_END)")
    _read_needs(found, shared)
    _warn_of_output(found, shared)
    return found


def _table(shared: elf.SharedObject) -> "list[tuple[str, str, str, int, int]]":
    return list(shared.options("spank_options"))


def _read_version(found: Inspection, shared: elf.SharedObject) -> None:
    absent = [name for name in ("plugin_name", "plugin_type", "plugin_version") if name not in shared.exported]
    if absent:
        found.error(f"{', '.join(absent)} missing: SPANK_PLUGIN(name, version) defines them")
    number = shared.number("plugin_version")
    if number is not None:
        found.version = unpack(number)
        if found.version[:2] != SLURM_VERSION[:2]:
            ours = release_of(SLURM_VERSION)
            found.error(f"compiled for Slurm {release_of(found.version)}; nodectl is {ours}: compile it again")
        elif found.type and found.type != "spank" and found.version != SLURM_VERSION:
            wanted = spell(SLURM_VERSION)
            found.error(f"its type is {found.type!r} and not 'spank', so that its version must be {wanted} exactly")
    if not absent and "spank_plugin_version" not in shared.exported:
        found.warn("spank_plugin_version is missing: not made by SPANK_PLUGIN; nobody looks at it today")


def _read_hooks(found: Inspection, shared: elf.SharedObject) -> None:
    exported = [name for name, kind in shared.exported.items() if kind == _FUNCTION]
    found.hooks = [name for name in functions("spank") if name in exported]
    for _, words in misspelt(exported):
        found.error(words)
    for hook in functions("spank"):
        if hook in shared.local and hook not in exported:
            found.error(f"{hook} is static or hidden: it is never called")
        mangled = f"_Z{len(hook)}{hook}"
        if any(name.startswith(mangled) for name in exported):
            found.error(f'{hook} has a C++ name: declare it extern "C"')
    if not found.hooks:
        found.error(f"no {PREFIX}* function: SPANK refuses it")


def _read_needs(found: Inspection, shared: elf.SharedObject) -> None:
    host = _exports(_host())
    libraries = _libraries(found, shared)
    for name in sorted(shared.needed - _LINKERS):
        if name in host:
            found.needs[name] = "nodectl"
        else:
            found.needs[name] = next((library for library, symbols in libraries.items() if name in symbols), "")
        if not found.needs[name]:
            when = "opening it fails" if shared.bound_now else "the hook that calls it fails"
            found.error(f"needs {name}, which nobody provides: {when}")


def _warn_of_output(found: Inspection, shared: elf.SharedObject) -> None:
    names = sorted(shared.needed & _OUTPUT)
    if names:
        found.warn(f"{', '.join(names)}: {PRINTS}")


def _libraries(found: Inspection, shared: elf.SharedObject) -> dict[str, frozenset[str]]:
    """What the plugin is linked with, and what that is linked with: each library's symbols, in the linker's order."""
    symbols = {_LIBC: _exports(shared.find(_LIBC))}
    waiting = [(name, shared) for name in shared.libraries]
    seen = set()
    while waiting:
        name, by = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        path = by.find(name) or _stand_in(name)
        if by is shared:
            found.libraries[name] = path
        if not path:
            why = "" if by is shared else f" (for {os.path.basename(by.path)})"
            found.error(f"is linked with {name}{why}, which is not here: opening it fails")
            continue
        symbols[name] = _exports(path)
        try:
            library = elf.SharedObject(path)
        except (OSError, elf.NoSharedObject):
            continue
        waiting += [(one, library) for one in library.libraries]
    return symbols


def _host() -> str:
    """The library whose functions plugins call; it is not loaded here."""
    spec = importlib.util.find_spec("nodectl._spank_host")
    return (spec.origin or "") if spec else ""


def _stand_in(library: str) -> str:
    path = os.path.join(_STAND_INS, library)
    return path if os.path.isfile(path) else ""


def _exports(path: str) -> frozenset[str]:
    try:
        return frozenset(elf.SharedObject(path).exported) if path else frozenset()
    except (OSError, elf.NoSharedObject):
        return frozenset()


def _machine(name: str) -> str:
    return name.removeprefix("EM_").lower().replace("_", "-")
