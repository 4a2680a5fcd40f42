"""The languages of --cpu-bind and --mem-bind: what is understood, what is refused in one line, and what lists cost."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.placement.binding.cpu_bind import CpuBind, parse_cpu_bind
from nodectl.placement.binding.entries import MAX_ENTRIES
from nodectl.placement.binding.mem_bind import parse_mem_bind
from nodectl.placement.binding.no_layout import NoLayout


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cores", CpuBind("cores")),
        ("v,threads", CpuBind("threads", verbose=True)),
        ("verbose,quiet,sockets", CpuBind("sockets")),
        ("NONE", CpuBind(mode="none")),
        ("no", CpuBind(mode="none")),
        ("ldoms,v", CpuBind("ldoms", verbose=True)),
        ("map_cpu:0,2*2,01", CpuBind(mode="map_cpu", entries=(0, 2, 2, 1), listed="0,2,2,01")),
        ("map_ldom:0x1", CpuBind(mode="map_ldom", entries=(1,), listed="0x1")),
        ("one_thread", CpuBind(one_thread=True)),
        ("v,one_thread,cores", CpuBind("cores", verbose=True, one_thread=True)),
        ("map_cpu:3,one_thread", CpuBind(mode="map_cpu", entries=(3,), listed="3", one_thread=True)),
        ("mask_cpu:3,0xC", CpuBind(mode="mask_cpu", entries=(3, 12), listed="3,0xC")),
        ("map_ldom:1,0,verbose", CpuBind(mode="map_ldom", entries=(1, 0), listed="1,0", verbose=True)),
        ("rank_ldom", CpuBind(mode="rank_ldom")),
    ],
)
def test_what_the_language_says_is_understood(text: str, value: CpuBind) -> None:
    assert parse_cpu_bind(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "boards",
        "map_cpu",
        "cores:1",
        "map_cpu:",
        "map_cpu:-1",
        "map_cpu:1*0",
        "map_cpu:70000",
        "map_cpu:0x0",
        "map_cpu:0x0,0x2",
        "map_cpu:0*0x2",
        "map_cpu:٣",
        "map_cpu:" + "9" * 5000,
        "map_cpu:0*" + "9" * 5000,
        "mask_cpu:" + "f" * 4000 + "*8000",
        "map_cpu:" + "0" * 4000 + "*8000",
        "mask_cpu:x",
        f"map_cpu:0*{MAX_ENTRIES + 1}",
        "map_cpu:0*99999999999999999999",
        "mask_cpu:" + "f" * 20_000,
        "x" * (1 << 21),
    ],
)
def test_nonsense_is_refused_in_one_bounded_line(text: str) -> None:
    with pytest.raises(NoLayout) as caught:
        parse_cpu_bind(text)
    assert "\n" not in caught.value.reason
    assert len(caught.value.reason) < 200


def refusal(parse: Callable[[str], object], text: str) -> str:
    try:
        parse(text)
    except NoLayout as refused:
        return refused.reason
    return ""


@given(st.text(alphabet="mapskcpu_lodrnve:,*0x1f9 \n-", max_size=40))
def test_any_text_is_a_value_or_a_refusal_in_one_line(text: str) -> None:
    assert "\n" not in refusal(parse_cpu_bind, text) + refusal(parse_mem_bind, text)


@pytest.mark.parametrize("text", ["bogus", "map_mem:", "map_mem:x", "mask_mem:0", "map_mem:0*0", "map_mem:99999"])
def test_memory_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(NoLayout):
        parse_mem_bind(text)


def test_reading_the_language_does_not_import_re() -> None:
    root = sysconfig.get_paths()["purelib"]
    code = (
        f"import sys; sys.path.insert(0, {root!r}); "
        "import nodectl.placement.binding.cpu_bind, nodectl.placement.binding.report; "
        "assert not {'re', 'dataclasses', 'typing', 'enum'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
