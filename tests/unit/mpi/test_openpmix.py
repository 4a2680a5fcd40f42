"""The structures by which OpenPMIx's library is called are those of its headers."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from nodectl.mpi import openpmix
from nodectl.mpi.openpmix import Info, Module, Proc

MEMBERS = [name for name, _ in Module._fields_ if name != "rest"]
ASKED = {
    "sizeof(pmix_proc_t)": Proc.rank.offset + 4,
    "offsetof(pmix_proc_t, rank)": Proc.rank.offset,
    "sizeof(pmix_info_t)": Info.value.offset + Info.value.size,
    "offsetof(pmix_info_t, flags)": Info.flags.offset,
    "offsetof(pmix_info_t, value.type)": Info.value.offset,
    "offsetof(pmix_info_t, value.data)": Info.value.offset + 8,
    "PMIX_STRING": openpmix.STRING,
    "PMIX_UINT32": openpmix.UINT32,
    "PMIX_BOOL": openpmix.BOOL,
    "PMIX_SUCCESS": openpmix.SUCCESS,
    "PMIX_OPERATION_SUCCEEDED": openpmix.DONE,
    "PMIX_ERR_NOT_SUPPORTED": openpmix.NOT_SUPPORTED,
    "PMIX_ERR_NOT_FOUND": openpmix.NOT_FOUND,
    **{f"offsetof(pmix_server_module_t, {name})": getattr(Module, name).offset for name in MEMBERS},
}
# Not those of a library within another one.
HEADERS = [path for path in Path("/usr").glob("lib*/*/pmix2/include") if (path / "pmix_server.h").exists()]
HEADERS += [path for path in (Path("/usr/include"),) if (path / "pmix_server.h").exists()]


@pytest.mark.skipif(not HEADERS, reason="no headers of OpenPMIx here")
def test_the_structures_are_those_of_the_headers(tmp_path: Path) -> None:
    lines = [f'    printf("%ld\\n", (long)({asked}));' for asked in ASKED]
    source = [
        "#include <pmix_server.h>",
        "#include <stddef.h>",
        "#include <stdio.h>",
        "int main(void)",
        "{",
        *lines,
        "}",
    ]
    subprocess.run(
        ["cc", "-x", "c", "-", f"-I{HEADERS[0]}", "-o", tmp_path / "sizes"],
        input="\n".join(source).encode(),
        check=True,
    )
    told = subprocess.run([tmp_path / "sizes"], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(ASKED, map(int, told), strict=True)) == ASKED


def test_the_librarys_structure_has_room_for_members_of_later_releases() -> None:
    assert Module.rest.size >= 512


@pytest.mark.parametrize(("made", "taken"), [(b"pmix[n[1:1-2]]", "pmix[n[1:1-2]]"), (b"blob:\xff", "raw:n1,n2")])
def test_a_list_that_a_later_release_compresses_goes_as_it_is(made: bytes, taken: str) -> None:
    class Fake(openpmix.Library):
        def __init__(self) -> None:
            pass

        def call(self, name: str, *arguments: object) -> None:
            assert name == "PMIx_generate_regex"
            ctypes.cast(arguments[1], ctypes.POINTER(ctypes.c_char_p))[0] = made  # type: ignore[arg-type]

    assert Fake().folded("PMIx_generate_regex", "n1,n2") == taken
