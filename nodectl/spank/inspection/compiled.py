"""Inspection of a compiled SPANK plugin's file: see `inspection`."""

import importlib.util
import os

from nodectl.plugin_host.kinds import KINDS
from nodectl.spank import SLURM_VERSION, versions
from nodectl.spank.inspection import elf
from nodectl.spank.inspection.findings import PREFIX, PRINTS, Inspection, Offered, misspelt, unknown
from nodectl.spank.inspection.slurm_releases import is_documented, release_of, spell, unpack
from nodectl.spank.preload import HOST

_FUNCTION = "STT_FUNC"
_MOST = 3  # names in one line
_RECORDS = ("22.05", "23.02", "24.11", "25.11", "26.05")  # releases whose struct job_info spank/c/job.c knows
_OUTPUT = frozenset({"printf", "vprintf", "puts", "putchar", "__printf_chk", "__vprintf_chk"})
_LIBC = "libc.so.6"
# Empty libraries for plugins linked with a libslurm: the host has the functions.
_STAND_INS = os.path.join(os.path.dirname(HOST), "libslurm")
_LIBSLURM = ("slurm_", "slurmdb_")
# Calls from plugins are bound to nodectl's functions (spank/c/link.c).
_PLAIN = frozenset({"error", "info", "verbose", "debug", "debug2", "debug3", "fatal", "slurm_fatal"})
# Defined by the C start-up files or looked up by the dynamic linker itself.
_LINKERS = frozenset({"__tls_get_addr", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_guard"})


def read(path: str) -> Inspection:
    """Inspect the shared object. Raises OSError."""
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
        if not versions.is_accepted(found.version):
            wanted = f"spank_versions has {versions.accepted()}"
            found.error(f"compiled for Slurm {release_of(found.version)}; {wanted}: compile it again")
        elif found.type and found.type != "spank" and found.version != SLURM_VERSION:
            wanted = spell(SLURM_VERSION)
            found.error(f"its type is {found.type!r} and not 'spank', so that its version must be {wanted} exactly")
    if not absent and "spank_plugin_version" not in shared.exported:
        found.warn("spank_plugin_version is missing: not made by SPANK_PLUGIN; no release looks at it today")


def _read_hooks(found: Inspection, shared: elf.SharedObject) -> None:
    exported = [name for name, kind in shared.exported.items() if kind == _FUNCTION]
    found.hooks = [name for name in KINDS["spank"].functions if name in exported]
    for _, words in misspelt(exported):
        found.error(words)
    for words in unknown(exported):
        found.warn(words)
    for hook in KINDS["spank"].functions:
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
        provider = next((library for library, symbols in libraries.items() if name in symbols), "")
        late = not shared.bound_now and name not in shared.at_once
        plain = name in _PLAIN and (provider == _LIBC or (provider == "" and late))
        found.needs[name] = "nodectl" if name in host or plain else provider
        if not found.needs[name]:
            when = "the hook that calls it fails" if late else "opening it fails"
            found.error(f"needs {name}, {_nobody(name)}: {when}")
    if shared.is_go:
        found.warn("is made with Go, whose runtime starts threads: each step opens it for itself, which takes its time")
    release = release_of(found.version) if found.version else ""
    if found.needs.get("slurm_load_job") == "nodectl" and release not in ("", *_RECORDS):
        known = ", ".join(_RECORDS)
        found.warn(f"slurm_load_job fails (ENOTSUP) in a plugin compiled for Slurm {release}: it knows {known}")


def _nobody(name: str) -> str:
    if name.startswith(_LIBSLURM) and not is_documented(name):
        return "which is for Slurm's own library to provide, not nodectl"
    return "which no library provides"


def _warn_of_output(found: Inspection, shared: elf.SharedObject) -> None:
    names = sorted(shared.needed & _OUTPUT)
    if names:
        found.warn(f"{', '.join(names)}: {PRINTS}")


def _libraries(found: Inspection, shared: elf.SharedObject) -> dict[str, frozenset[str]]:
    """Return the symbols of each library linked with the plugin, directly or indirectly, in the linker's order.

    Notes in `found` the plugin's own libraries, and errors for libraries that are missing or too old.
    """
    symbols = {_LIBC: _exports(shared.find(_LIBC))}
    opened: dict[str, elf.SharedObject] = {}
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
        try:
            opened[name] = elf.SharedObject(path)
        except (OSError, elf.NoSharedObject) as error:
            why = "" if by is shared else f" (for {os.path.basename(by.path)})"
            what = str(error) if path else "is not here"
            found.error(f"is linked with {name}{why}, which {what}: opening it fails")
            continue
        symbols[name] = _of(opened[name])
        absent = sorted(by.versions.get(name, set()) - opened[name].defined)
        if absent:
            what = "is linked" if by is shared else f"{os.path.basename(by.path)} is linked"
            found.error(f"{what} with a newer {name}, one with {_some(absent)}: opening it fails")
        waiting += [(one, opened[name]) for one in opened[name].libraries]
    everything = frozenset(shared.exported).union(_exports(_host()), *symbols.values())
    for name, library in opened.items():
        _check_library(found, name, library, library.needed - everything - _LINKERS)
    return symbols


def _check_library(found: Inspection, name: str, library: elf.SharedObject, absent: set[str]) -> None:
    """Note the symbols missing for a library. `absent`: needed symbols without a provider."""
    at_once = sorted(absent if library.bound_now else absent & library.at_once)
    if at_once:
        found.error(f"is linked with {name}, which needs {_some(at_once)}, which no library provides: opening it fails")
    elif absent:
        found.warn(
            f"is linked with {name}, which needs {_some(sorted(absent))}, which no library provides: a call of it fails"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")


def _host() -> str:
    """Return the path of the library with the functions called by plugins; the library is not loaded here."""
    spec = importlib.util.find_spec("nodectl.spank._spank_host")
    return (spec.origin or "") if spec else ""


def _stand_in(library: str) -> str:
    path = os.path.join(_STAND_INS, library)
    return path if os.path.isfile(path) else ""


def _exports(path: str) -> frozenset[str]:
    try:
        return _of(elf.SharedObject(path)) if path else frozenset()
    except (OSError, elf.NoSharedObject):
        return frozenset()


def _of(library: elf.SharedObject) -> frozenset[str]:
    """Return the exported symbols, without data symbols under the names of nodectl's functions."""
    return frozenset(name for name, kind in library.exported.items() if name not in _PLAIN or kind == _FUNCTION)


def _machine(name: str) -> str:
    return name.removeprefix("EM_").lower().replace("_", "-")
