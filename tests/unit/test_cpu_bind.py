from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nodectl
from nodectl.cpu_bind import (
    MAX_ENTRIES,
    BadCpuBind,
    CpuBind,
    Unit,
    environment,
    format_mask,
    parse,
    report_line,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("none", CpuBind(Unit.NONE)),
        ("no", CpuBind(Unit.NONE)),
        ("threads", CpuBind(Unit.THREADS)),
        ("Cores", CpuBind(Unit.CORES)),
        ("sockets", CpuBind(Unit.SOCKETS)),
        ("quiet", CpuBind()),
        ("v", CpuBind(verbose=True)),
        ("verbose,cores", CpuBind(Unit.CORES, verbose=True)),
        ("cores,verbose,quiet", CpuBind(Unit.CORES)),
        ("map_cpu:0", CpuBind(Unit.MAP, ids=(0,))),
        ("map_cpu:3,2,0x1F,010", CpuBind(Unit.MAP, ids=(3, 2, 31, 10))),
        ("map_cpu:0*2,8", CpuBind(Unit.MAP, ids=(0, 0, 8))),
        ("verbose,map_cpu:0,1", CpuBind(Unit.MAP, verbose=True, ids=(0, 1))),
        ("map_cpu:0,1,verbose", CpuBind(Unit.MAP, verbose=True, ids=(0, 1))),
        ("mask_cpu:0x3,c,FF", CpuBind(Unit.MASK, masks=(0x3, 0xC, 0xFF))),
        ("mask_cpu:0x1*2,0x6", CpuBind(Unit.MASK, masks=(1, 1, 6))),
        ("mask_cpu:0x0", CpuBind(Unit.MASK, masks=(0,))),
        ("mask_cpu:c,v", CpuBind(Unit.MASK, verbose=True, masks=(0xC,))),
    ],
)
def test_what_the_language_says_is_understood(text: str, value: CpuBind) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("map_cpu:0,x", "--cpu-bind=map_cpu:0,x: 'x' is not a CPU number"),
        ("map_cpu:0,,1", "--cpu-bind=map_cpu:0,,1: '' is not a CPU number"),
        ("map_cpu:", "--cpu-bind=map_cpu:: '' is not a CPU number"),
        ("map_cpu:-1", "--cpu-bind=map_cpu:-1: '-1' is not a CPU number"),
        ("map_cpu:1_0", "--cpu-bind=map_cpu:1_0: '1_0' is not a CPU number"),
        ("map_cpu:70000", "--cpu-bind=map_cpu:70000: '70000' names a CPU above 65535"),
        ("mask_cpu:0x", "--cpu-bind=mask_cpu:0x: '0x' is not a CPU mask"),
        ("mask_cpu:g", "--cpu-bind=mask_cpu:g: 'g' is not a CPU mask"),
        ("map_cpu:1*0", "--cpu-bind=map_cpu:1*0: '1*0' does not repeat a positive number of times"),
        ("map_cpu:1*", "--cpu-bind=map_cpu:1*: '1*' does not repeat a positive number of times"),
        ("cores,threads", "--cpu-bind=cores,threads: 'threads' contradicts 'cores'"),
        ("cores:1", "--cpu-bind=cores:1: 'cores:1' takes no list"),
        ("map_cpu", "--cpu-bind=map_cpu: 'map_cpu' needs a list, as map_cpu:0,1 or mask_cpu:0x3"),
        ("boards", "--cpu-bind=boards: 'boards' is no way to bind; give none, threads"),
        ("verbose,", "--cpu-bind=verbose,: '' is no way to bind"),
        ("", "--cpu-bind=: says nothing"),
    ],
)
def test_refusal_names_the_word(text: str, message: str) -> None:
    with pytest.raises(BadCpuBind) as refusal:
        parse(text)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    "text",
    [
        f"map_cpu:0*{MAX_ENTRIES + 1}",
        "map_cpu:0*99999999999999999999",
        "mask_cpu:0x1*40000,0x2*40000",
        "map_cpu:" + "9" * 5000,
        "mask_cpu:" + "f" * 20_000,
        "x" * (1 << 21),
    ],
)
def test_huge_lists_are_refused_before_they_are_made(text: str) -> None:
    with pytest.raises(BadCpuBind) as refusal:
        parse(text)
    assert len(str(refusal.value)) < 300


def test_the_longest_list_is_taken() -> None:
    assert len(parse(f"map_cpu:0*{MAX_ENTRIES - 1},1").ids) == MAX_ENTRIES


@given(st.text(max_size=40) | st.from_regex(r"(map|mask)_cpu:[0-9a-fx*,]{0,12}", fullmatch=True))
def test_any_text_is_a_value_or_a_refusal_in_one_line(text: str) -> None:
    said = ""
    try:
        value = parse(text)
    except BadCpuBind as refusal:
        value, said = CpuBind(), str(refusal)
    assert said.isprintable()
    assert bool(value.ids) == (value.unit is Unit.MAP)
    assert bool(value.masks) == (value.unit is Unit.MASK)


@given(st.lists(st.integers(0, 65_535), min_size=1, max_size=20))
def test_lists_are_read_as_they_were_meant(cpus: list[int]) -> None:
    assert parse("map_cpu:" + ",".join(map(str, cpus))).ids == tuple(cpus)
    assert parse("mask_cpu:" + ",".join(f"{cpu:x}" for cpu in cpus)).masks == tuple(cpus)


def test_request_cannot_be_changed_and_compares_by_value() -> None:
    value = parse("verbose,map_cpu:1")
    with pytest.raises(AttributeError, match="immutable"):
        value.unit = Unit.NONE
    with pytest.raises(AttributeError, match="immutable"):
        del value.ids
    assert value == copy.deepcopy(value) == parse("v,map_cpu:0x1")
    assert len({value, parse("v,map_cpu:1"), parse("map_cpu:1")}) == 2
    assert value != "verbose,map_cpu:1"


def test_list_without_its_unit_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="cores"):
        CpuBind(Unit.CORES, ids=(1,))
    with pytest.raises(ValueError, match="map_cpu"):
        CpuBind(Unit.MAP)


@pytest.mark.parametrize(
    ("text", "masks", "told", "kind", "listed"),
    [
        ("cores", (0x3, 0x300), "quiet,mask_cpu:0x0003,0x0300", "mask_cpu:", "0x0003,0x0300"),
        ("quiet", (0xFFFF,) * 4, "quiet,mask_cpu:0xFFFF", "mask_cpu:", "0xFFFF"),
        ("v", (0xC, 0xC0), "verbose,mask_cpu:0x000C,0x00C0", "mask_cpu:", "0x000C,0x00C0"),
        ("sockets", (0xF, 0xF), "quiet,mask_cpu:0x000F,0x000F", "mask_cpu:", "0x000F,0x000F"),
        ("none", (0, 0), "quiet,none", "none", ""),
        ("none", (0x1F,) * 5, "quiet,mask_cpu:0x001F", "mask_cpu:", "0x001F"),
        ("map_cpu:0*2,0x8", (1, 1), "quiet,map_cpu:0,0,8", "map_cpu:", "0,0,8"),
        ("mask_cpu:0x3,C", (3, 12), "quiet,mask_cpu:3,c", "mask_cpu:", "3,c"),
        ("mask_cpu:0x0", (0xFFFF,), "quiet,mask_cpu:ffff", "mask_cpu:", "ffff"),
        ("mask_cpu:1,8000", (1,), "quiet,mask_cpu:1,8000", "mask_cpu:", "1,8000"),
    ],
)
def test_environment_tells_the_binding_as_slurm_does(
    text: str, masks: tuple[int, ...], told: str, kind: str, listed: str
) -> None:
    assert environment(parse(text), masks, width=16) == {
        "SLURM_CPU_BIND": told,
        "SLURM_CPU_BIND_VERBOSE": told.partition(",")[0],
        "SLURM_CPU_BIND_TYPE": kind,
        "SLURM_CPU_BIND_LIST": listed,
    }


def test_masks_are_as_wide_as_the_machine() -> None:
    assert format_mask(1, 6) == "0x01"
    assert format_mask(1, 2) == "0x1"
    assert format_mask(0xABC, 4) == "0xABC"


def test_report_has_slurms_columns() -> None:
    def line(text: str, mask: int, *, inherited: int = 0, failed: bool = False) -> str:
        return report_line(
            parse(text), node="bed", task=3, local=1, pid=5530, mask=mask, inherited=inherited,
            failed=failed,
        )  # fmt: skip

    assert line("v,cores", 0xFFFF) == "cpu-bind=MASK - bed, task  3  1 [5530]: mask 0xffff set"
    assert line("v,map_cpu:1", 2) == "cpu-bind=MAP  - bed, task  3  1 [5530]: mask 0x2 set"
    assert line("v,none", 0, inherited=3) == "cpu-bind=NONE - bed, task  3  1 [5530]: mask 0x3"
    assert line("v", 1, failed=True).endswith(": mask 0x1 set FAILED")


def test_reading_the_language_does_not_import_re() -> None:
    root = str(Path(nodectl.__file__).parent.parent)
    program = (
        f"import sys; sys.path.insert(0, {root!r}); import nodectl.cpu_bind; "
        "print(sorted({'re', 'dataclasses', 'typing', 'logging'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
