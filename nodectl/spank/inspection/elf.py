"""Reader of a shared object's file: symbols, libraries, binding, data. Executes nothing of the object.

Only `nodectl spank` and the lists of plugins import this module: pyelftools is no part of a launch. Source of the
fields: elf(5), the gABI's chapter on dynamic linking, ld.so(8) for the search of libraries.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

_NOW_FLAGS, _NOW_FLAGS_1, _PROGRAM_FLAGS_1 = 0x8, 0x1, 0x08000000  # DF_BIND_NOW, DF_1_NOW, DF_1_PIE
_LONGEST_TEXT = 4096
_GO = frozenset({".go.buildinfo", ".gopclntab"})
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"


class NoSharedObject(Exception):
    """The file is not a shared object for dlopen(3) on this machine; str() is the reason."""


class SharedObject:
    """A shared object. Raises NoSharedObject, OSError.

    `exported`: the symbols that the object defines for other objects, by name, with the type ("STT_FUNC",
    "STT_OBJECT"). `needed`: the symbols that other objects must define, without weak references; `at_once`: the needed
    symbols that must exist when the object is opened, data for example. `local`: functions that stay inside, from the
    symbol table that strip(1) removes. `libraries`: DT_NEEDED. `versions`: for each library, the symbol versions that
    the object wants; `defined`: the symbol versions that the object itself defines. `bound_now`: the linker looks every
    function up when the object is opened. `is_go`: the object brings Go's runtime.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "rb") as file:
            try:
                self._read(ELFFile(file))
            except (ELFError, ValueError, KeyError, IndexError, struct.error, UnicodeDecodeError, TypeError) as error:
                raise NoSharedObject(f"is no shared object: {str(error) or type(error).__name__}") from None

    def _read(self, elf: Any) -> None:
        if elf.header.e_type != "ET_DYN":
            raise NoSharedObject(f"is no shared object but {_KINDS.get(elf.header.e_type, elf.header.e_type)}")
        self.machine = str(elf.header.e_machine)
        self._wide = elf.elfclass == 64
        self._order = "<" if elf.little_endian else ">"
        self._loaded = [
            (segment.header.p_vaddr, segment.data())
            for segment in elf.iter_segments()
            if segment.header.p_type == "PT_LOAD"
        ]
        self.exported: dict[str, str] = {}
        self.needed: set[str] = set()
        self.at_once: set[str] = set()
        self.versions: dict[str, set[str]] = {}
        self.defined: set[str] = set()
        self.is_go = False
        self.local: set[str] = set()
        self._address: dict[str, tuple[int, int]] = {}
        self.libraries: list[str] = []
        self.search: list[str] = []
        self.bound_now = False
        self._relocated: dict[int, int] = {}
        for section in elf.iter_sections():
            self.is_go |= section.name in _GO
            if isinstance(section, DynamicSection):
                self._read_dynamic(section)
            elif isinstance(section, SymbolTableSection) and section.name == ".dynsym":
                self._read_symbols(section)
            elif isinstance(section, GNUVerNeedSection):
                self.versions |= {need.name: {one.name for one in wanted} for need, wanted in section.iter_versions()}
            elif isinstance(section, GNUVerDefSection):
                self.defined.update(name.name for _, names in section.iter_versions() for name in names)
            elif isinstance(section, SymbolTableSection):
                self.local.update(
                    symbol.name
                    for symbol in section.iter_symbols()
                    if symbol.entry.st_info.bind == "STB_LOCAL" and symbol.entry.st_info.type == "STT_FUNC"
                )
        for section in elf.iter_sections():
            if isinstance(section, RelocationSection) and section.name.startswith((".rela.dyn", ".rel.dyn")):
                self._read_relocations(section, elf.get_section(section.header.sh_link))

    def _read_dynamic(self, section: Any) -> None:
        for tag in section.iter_tags():
            name = tag.entry.d_tag
            if name == "DT_FLAGS_1" and tag.entry.d_val & _PROGRAM_FLAGS_1:
                raise NoSharedObject("is no shared object but a program")
            if name == "DT_NEEDED":
                self.libraries.append(tag.needed)
            elif name in ("DT_RUNPATH", "DT_RPATH"):
                words = tag.runpath if name == "DT_RUNPATH" else tag.rpath
                self.search += [word for word in words.split(":") if word]
            elif (
                name == "DT_BIND_NOW"
                or (name == "DT_FLAGS" and tag.entry.d_val & _NOW_FLAGS)
                or (name == "DT_FLAGS_1" and tag.entry.d_val & _NOW_FLAGS_1)
            ):
                self.bound_now = True

    def _read_symbols(self, section: Any) -> None:
        for symbol in section.iter_symbols():
            entry = symbol.entry
            if not symbol.name:
                continue
            if entry.st_shndx == "SHN_UNDEF":
                if entry.st_info.bind == "STB_GLOBAL":
                    self.needed.add(symbol.name)
            elif entry.st_info.bind != "STB_LOCAL" and entry.st_other.visibility in ("STV_DEFAULT", "STV_PROTECTED"):
                self.exported[symbol.name] = entry.st_info.type
                self._address[symbol.name] = (entry.st_value, entry.st_size)

    def _read_relocations(self, section: Any, symbols: Any) -> None:
        for relocation in section.iter_relocations():
            value = relocation.entry.r_addend if section.is_RELA() else 0
            if relocation.entry.r_info_sym:
                symbol = symbols.get_symbol(relocation.entry.r_info_sym)
                value += symbol.entry.st_value
                self.at_once |= self.needed & {symbol.name}
            self._relocated[relocation.entry.r_offset] = value

    # Data.

    def number(self, symbol: str) -> int | None:
        """Return the unsigned 32-bit number at a symbol, None if there is no such symbol."""
        data = self._bytes(self._address.get(symbol, (0, 0))[0], 4) if symbol in self.exported else b""
        return struct.unpack(self._order + "I", data)[0] if len(data) == 4 else None

    def text(self, symbol: str) -> str | None:
        """Return the string in the character array at a symbol, None if there is no such symbol."""
        return self._text_at(self._address[symbol][0]) if symbol in self.exported else None

    def options(self, symbol: str) -> Iterator[tuple[str, str, str, int, int]]:
        """Yield the rows of a table of the documented struct spank_option: name, arginfo, usage, has_arg, val."""
        if symbol not in self.exported:
            return
        pointer = 8 if self._wide else 4
        size = 4 * pointer + 8
        address, length = self._address[symbol]
        for row in range(address, address + length - size + 1, size):
            name, arginfo, usage = (self._text_at(self._pointer(row + place * pointer)) for place in range(3))
            if name is None:
                return
            has_arg, val = struct.unpack(self._order + "ii", self._bytes(row + 3 * pointer, 8))
            yield name, arginfo or "", usage or "", has_arg, val

    def ends(self, symbol: str) -> bool:
        """Return True if the table has an empty row, which must be the last."""
        pointer = 8 if self._wide else 4
        size = 4 * pointer + 8
        address, length = self._address[symbol]
        return any(self._pointer(row) == 0 for row in range(address, address + length - size + 1, size))

    def _pointer(self, address: int) -> int:
        if address in self._relocated:
            return self._relocated[address]
        size = 8 if self._wide else 4
        data = self._bytes(address, size)
        return int.from_bytes(data, "little" if self._order == "<" else "big")

    def _bytes(self, address: int, length: int) -> bytes:
        for start, data in self._loaded:
            if start <= address < start + len(data):
                return bytes(data[address - start : address - start + length])
        return b""

    def _text_at(self, address: int) -> str | None:
        data = self._bytes(address, _LONGEST_TEXT) if address else b""
        return data.partition(b"\0")[0].decode("utf-8", "backslashreplace") if data else None

    # Libraries.

    def find(self, library: str) -> str:
        """Return the file from which ld.so(8) would load a needed library, "" if there is no such file."""
        origin = os.path.dirname(os.path.realpath(self.path))
        places = [word.replace("$ORIGIN", origin).replace("${ORIGIN}", origin) for word in self.search]
        candidates = [library] if "/" in library else [f"{place}/{library}" for place in places]
        if "/" not in library:
            candidates += _known_libraries().get(library, ())
            candidates += [f"{place}/{library}" for place in ("/lib64", "/usr/lib64", "/lib", "/usr/lib")]
        for candidate in candidates:
            if os.path.isfile(candidate) and _machine(candidate) == self.machine:
                return candidate
        return ""


_KINDS = {"ET_EXEC": "a program", "ET_REL": "an object file that was not linked", "ET_CORE": "a core dump"}


@cache
def machine() -> str:
    """Return this machine's name in ELF headers, read from the running Python's file."""
    return _machine("/proc/self/exe")


def _machine(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return str(ELFFile(file).header.e_machine)
    except (OSError, ELFError):
        return ""


@cache
def _known_libraries() -> Mapping[str, list[str]]:
    """Read /etc/ld.so.cache in the format of ldconfig(8) of glibc 2.2 and later.

    The file holds names and paths as offsets into itself.
    """
    try:
        with open("/etc/ld.so.cache", "rb") as file:
            content = file.read()
    except OSError:
        return {}
    start = content.find(_CACHE_MAGIC)
    if start < 0:
        return {}
    content = content[start:]
    found: dict[str, list[str]] = {}
    (count,) = struct.unpack_from("=I", content, 20)
    for row in range(count):
        _, name, path = struct.unpack_from("=iII", content, 48 + 24 * row)
        found.setdefault(_word(content, name), []).append(_word(content, path))
    return found


def _word(content: bytes, start: int) -> str:
    return os.fsdecode(content[start : content.index(b"\0", start)])
