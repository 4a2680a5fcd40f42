"""Numbers that people type: what is one, and that nobody is answered in the interpreter's own words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.cli import send_signal
from nodectl.client import command, run_options, step_name
from nodectl.client.launch_request import _ntasks
from nodectl.launch.cgroup import shares
from nodectl.model import cpu_list
from nodectl.model.number import scaled, whole
from nodectl.model.wire import lean_json
from nodectl.placement.binding import devices
from nodectl.placement.binding.cpu_bind import parse_cpu_bind
from nodectl.placement.binding.hostlist import expand
from nodectl.placement.binding.mem_bind import parse_mem_bind
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import ROWS, request_of
from nodectl.placement.machine import spec

TOO_LONG = "9" * 5000  # int() refuses 4,301 digits
ZEROS = "0" * 5000
OPTIONS = {name: option.take for option in run_options.OPTIONS for name in [option.long]}


@pytest.mark.parametrize(
    ("text", "most", "number"),
    [
        ("0", 5, 0), ("5", 5, 5), ("6", 5, None), ("", 5, None), ("-1", 5, None), ("+1", 5, None), (" 1", 5, None),
        ("1_0", 99, None), ("٣", 99, None), ("²", 99, None), ("0x1", 99, None), ("1.0", 99, None), ("007", 9, 7),
        (ZEROS, 5, 0), (ZEROS + "5", 5, 5), (TOO_LONG, 5, None), (TOO_LONG, 10**18, None), ("1\n", 99, None),
    ],
)  # fmt: skip
def test_a_number_is_digits_and_nothing_else(text: str, most: int, number: int | None) -> None:
    assert whole(text, most) == number


@given(st.text(max_size=8) | st.from_regex(r"\A0*[0-9]{1,6}\Z"), st.integers(0, 10**6))
def test_any_text_is_a_number_or_none(text: str, most: int) -> None:
    number = whole(text, most)
    assert number is None or (0 <= number <= most and int(text) == number)


@pytest.mark.parametrize(
    ("text", "most", "number"),
    [
        ("7", 7, 7), ("8", 7, None), ("1K", 1024, 1024), ("1k", 1023, None), ("2m", 1 << 30, 2 << 20),
        ("3G", 1 << 40, 3 << 30), ("1T", 1 << 40, 1 << 40), ("1T", (1 << 40) - 1, None), ("K", 9999, None),
        ("1KB", 9999, None), ("1.5K", 9999, None), ("-1K", 9999, None), ("1 K", 9999, None), ("", 9999, None),
        (TOO_LONG + "K", 10**18, None),
    ],
)  # fmt: skip
def test_a_number_may_have_a_unit_and_its_result_has_a_bound(text: str, most: int, number: int | None) -> None:
    assert scaled(text, most) == number


def refusal(parse: Callable[[], object]) -> str:
    """What it is turned down with, "" where it is not. Exceptions other than these fail the test."""
    try:
        parse()
    except (NoLayout, command.BadOption, ValueError) as error:
        return str(error)
    return ""


def is_ours(reason: str) -> bool:
    """One line of ours, not the interpreter's about its limits and bases."""
    return len(reason) < 400 and not any(word in reason for word in ("4300", "int()", "digits;", "\n", "codec"))


@pytest.mark.parametrize("digits", [TOO_LONG, ZEROS, ZEROS + "1999", "0x" + TOO_LONG, "-" + TOO_LONG, "1" * 4301])
def test_thousands_of_digits_are_refused_in_our_own_words(digits: str) -> None:
    tries: list[Callable[[], object]] = []
    for row in ROWS:
        name = row[0].replace("-", "_")
        tries.append(lambda name=name: request_of({name: digits}, {}))  # type: ignore[misc]
        tries.append(lambda name=name: devices.wanted({name: digits}, 1))  # type: ignore[misc]
    for name, take in OPTIONS.items():
        if name not in ("export", "trace"):
            tries.append(lambda take=take: take(digits))  # type: ignore[misc]
    tries += [
        lambda: request_of({"distribution": f"plane={digits}"}, {}),
        lambda: request_of({}, {"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": digits}),
        lambda: request_of({"extra_node_info": f"1:{digits}:1"}, {}),
        lambda: request_of({"nodes": f"1-{digits}"}, {}),
        lambda: expand(f"n[1-{digits}]"),
        lambda: parse_cpu_bind(f"map_cpu:{digits}"),
        lambda: parse_cpu_bind(f"map_cpu:0*{digits}"),
        lambda: parse_mem_bind(f"map_mem:{digits}"),
        lambda: devices.wanted({"gpus": f"a100:{digits}"}, 1),
        lambda: devices.wanted({"gpus": "1", "gpu_bind": f"map_gpu:{digits}"}, 1),
        lambda: devices.wanted({"gpus": "1", "gpu_bind": f"map_gpu:0*{digits}"}, 1),
        lambda: devices.wanted({"gpus": "1", "gpu_bind": f"single:{digits}"}, 1),
        lambda: spec.from_spec(f"{digits[:60]}s:1c"),
        lambda: spec.from_lscpu(f'{{"cpus": [{{"cpu": {digits}}}]}}'.encode()),
        lambda: spec.from_lscpu(f'{{"cpus": [{{"cpu": "0", "node": "{digits}"}}]}}'.encode()),
        lambda: cpu_list.mask_of_list(digits),
        lambda: shares.amount(digits),
        lambda: shares.hugetlb_max([f"2MB:{digits}"]),
        lambda: step_name.step_of(digits),
        lambda: step_name.step_of(f"1.{digits}"),
        lambda: send_signal.signal_of(digits),
        lambda: send_signal.signal_of(f"RTMIN+{digits}"),
        lambda: _ntasks({"ntasks_per_node": digits}, {"SLURM_NTASKS": digits}),
        lambda: lean_json.loads(digits),
    ]
    wrong = [reason for reason in map(refusal, tries) if not is_ours(reason)]
    assert not wrong, [reason[:300] for reason in wrong]


def test_a_plane_of_many_zeros_is_its_number() -> None:
    distribution = request_of({"distribution": f"plane={'0' * 50}2"}, {}).distribution
    assert distribution is not None
    assert distribution.plane == 2
