"""Whatever people type at layout and binding, long, deep, repeated: a value or one line, and never much memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.model import cpu_list
from nodectl.placement.binding import devices, node
from nodectl.placement.binding.cpu_bind import parse_cpu_bind
from nodectl.placement.binding.hostlist import expand
from nodectl.placement.binding.mem_bind import parse_mem_bind
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import NAMES, request_of
from nodectl.placement.binding.request import Settings
from nodectl.placement.machine import spec
from nodectl.placement.machine.declared_devices import declared
from nodectl.placement.machine.spec import from_spec

MACHINE = from_spec("2s:4c:2t:2n:i")
DEVICES = ("gpus", "gpus_per_node", "gpus_per_task", "gres", "gpu_bind", "gres_flags")
EXAMPLES = 300
# What the languages are made of, and what int(), split() and terminals stumble over.
PIECES = (
    "map_cpu:", "mask_cpu:", "map_ldom:", "mask_ldom:", "rank", "rank_ldom", "none", "cores", "threads", "sockets",
    "ldoms", "verbose", "one_thread", "map_mem:", "mask_mem:", "local", "prefer", "block", "cyclic", "plane=",
    "fcyclic", "arbitrary", "Pack", "map_gpu:", "mask_gpu:", "single:", "per_task:", "closest", "gpu", "a100",
    "compute_bound", "nomultithread", "n", "[", "]", "-", ":", ",", "*", "0", "1", "2", "7", "0x3", "ff", "65535",
    "999999999",
    "f" * 300, "9" * 5000, "0" * 5000, "٣", "²", "_", "+", " ", "\n", "\r", "\x1b[31m", "\0", "\udcff", "\U0010ffff",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.builds(
    lambda piece, times: piece * times, st.sampled_from(PIECES), st.sampled_from((100, 1000, 5000))
)


def outcome(parse: Callable[[], object], refusal: type[Exception] = NoLayout) -> str:
    """What it is refused with; other exceptions than a module's own fail the test."""
    try:
        parse()
    except refusal as error:
        return str(error)
    return ""


def is_one_line(reason: str) -> bool:
    # 400 letters and the three dots; one that is not printable takes ten.
    return len(reason) <= 4003 and (reason.isprintable() or not reason)


@settings(max_examples=EXAMPLES, deadline=None)
@given(TEXTS)
def test_every_language_of_an_option_reads_any_text_or_refuses_it(text: str) -> None:
    for parse in (parse_cpu_bind, parse_mem_bind, expand):
        assert is_one_line(outcome(lambda parse=parse: parse(text)))  # type: ignore[misc]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(NAMES)), TEXTS, max_size=4), st.integers(1, 40))
def test_any_options_together_are_laid_out_or_refused(given_: dict[str, str], ntasks: int) -> None:
    options: dict[str, object] = {"ntasks": ntasks, **given_}

    def lay_out() -> None:
        request = request_of(options, {}, given_.get("hostfile", ""))
        devices.wanted({name: given_[name] for name in DEVICES if name in given_}, ntasks)
        # What an attacker gets past the daemon's own bound of tasks is none of this test's.
        if (request.ntasks or 1) <= 1000:
            node.lay_out(MACHINE, MACHINE.usable, request, Settings(), "n1")

    assert is_one_line(outcome(lay_out))


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(TEXTS)
def test_machines_and_cpu_lists_are_read_or_refused(text: str) -> None:
    table = json.dumps({"cpus": [{"cpu": text, "node": text, "core": text, "l1d": text}, {"cpu": 0, "socket": text}]})
    readers: tuple[Callable[[], object], ...] = (
        lambda: spec.from_spec(text),
        lambda: spec.from_lscpu(text.encode("utf-8", "replace")),
        lambda: spec.from_lscpu(table.encode()),
        lambda: cpu_list.parse_cpulist(text),
        lambda: cpu_list.mask_of_list(text),
        lambda: declared([text]),
        lambda: declared([f"Name=gpu Count={text}", f"Name=gpu File=/dev/{text} Cores={text}"]),
    )
    for read in readers:
        told = outcome(read, ValueError)
        assert not any(words in told for words in ("int()", "4300", "codec", "substring"))


@pytest.mark.parametrize(
    "read",
    [
        lambda: parse_cpu_bind("map_cpu:0*8192"),
        lambda: parse_cpu_bind("mask_cpu:" + "f" * 16_384 + "*8192"),
        lambda: parse_cpu_bind("mask_cpu:" + ",".join(["0x" + "f" * 10_000] * 12)),
        lambda: parse_mem_bind("mask_mem:" + "f" * 256 + "*8192"),
        lambda: parse_cpu_bind("map_cpu:" + "0" * 100_000 + "*8192"),
        lambda: expand("n" * 240 + "[0-4095]"),
        lambda: expand(",".join(["n[0-4095]"] * 400)),
        lambda: request_of({"cpu_bind": "x" * 5_000_000}, {}),
        lambda: devices.wanted({"gpus": "1", "gpu_bind": "mask_gpu:" + "f" * 256 + "*1024"}, 1),
        lambda: cpu_list.parse_cpulist(",".join(["0-65535"] * 100)),
        lambda: node.lay_out(MACHINE, MACHINE.usable, request_of({"ntasks": 999_999_999}, {}), Settings(), "n1"),
    ],
)
def test_a_short_text_does_not_take_much_memory(read: Callable[[], object]) -> None:
    tracemalloc.start()
    try:
        outcome(read)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 16 << 20
