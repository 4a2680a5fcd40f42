"""What srun's options of layout mean together: small languages, precedence, what one option implies for another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.placement.binding.cpu_bind import CpuBind
from nodectl.placement.binding.hostlist import MAX_NODES, expand
from nodectl.placement.binding.mem_bind import MemBind, parse_mem_bind
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import NAMES, request_of
from nodectl.placement.binding.request import (
    UNLIMITED,
    Distribution,
    parse_distribution,
    parse_geometry,
    parse_nodes,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("block", Distribution("block")),
        ("*", Distribution("block")),
        ("cyclic:block", Distribution("cyclic", "block")),
        ("*:*", Distribution("block", "cyclic")),
        ("*:*:*", Distribution("block", "cyclic", "cyclic")),
        ("*:block:*", Distribution("block", "block", "block")),
        ("*:*:fcyclic", Distribution("block", "cyclic", "fcyclic")),
        ("Pack", Distribution(pack=True)),
        ("nopack", Distribution(pack=False)),
        ("*,pack", Distribution("block", pack=True)),
        ("Block:FCyclic:cyclic,NoPack", Distribution("block", "fcyclic", "cyclic", pack=False)),
        ("cyclic,Pack", Distribution("cyclic", pack=True)),
        ("plane=4", Distribution("plane", plane=4)),
        ("arbitrary", Distribution("arbitrary")),
    ],
)
def test_a_distribution_is_read_level_by_level(text: str, value: Distribution) -> None:
    assert parse_distribution(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "bogus", "plane", "plane=0", "plane=x", "fcyclic", "block:plane=2", "block:block:block:block", "block,x"],
)
def test_a_distribution_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(NoLayout, match="Invalid --distribution"):
        parse_distribution(text)


def test_geometry_counts_its_levels_and_takes_a_star_for_all() -> None:
    assert parse_geometry("2") == (2,)
    assert parse_geometry("*:4-8:1") == (UNLIMITED, 4, 1)
    for text in ("", "0", "1:2:3:4", "x", "1::2"):
        with pytest.raises(NoLayout):
            parse_geometry(text)


def test_a_range_of_nodes_runs_upwards() -> None:
    assert parse_nodes("2") == (2, 2)
    assert parse_nodes("2-4") == (2, 4)
    for text in ("0", "4-2", "-1", "2-", "n1"):
        with pytest.raises(NoLayout):
            parse_nodes(text)


def test_names_of_nodes_are_expanded_in_order() -> None:
    assert expand("n1, n[3-4,08-10],x[1]-ib") == ("n1", "n3", "n4", "n08", "n09", "n10", "x1-ib")
    assert expand(" ") == ()
    for text in (
        "n[1",
        "n[2-1]",
        "n[1-99999999]",
        "n[a]",
        "n1]",
        "n]1,n2",
        "n[1]]",
        "n[[1]]",
        "n[1]x[2]",
        "n[]",
        "n[٣]",
    ):
        with pytest.raises(NoLayout):
            expand(text)


@pytest.mark.parametrize(
    "text",
    [
        "n[0-4096]", "n[1-4096],m", ",".join(["n[0-4000]"] * 10), "n[0-999999]" * 2, "n" * 300,
        "n" * 252 + "[1-1000]", f"n[{'0' * 300}1]", "n[1," * 100_000, "[" * 100_000, "]," * 100_000, "a," * 100_000,
        f"n[{'1,' * 100_000}1]",
    ],
)  # fmt: skip
def test_a_short_list_does_not_become_many_names_or_long_ones(text: str) -> None:
    with pytest.raises(NoLayout) as caught:
        expand(text)
    assert len(caught.value.reason) < 300


def test_a_clusters_own_list_may_be_longer_than_what_a_request_names() -> None:
    assert len(expand("n[0-9999]", MAX_NODES)) == 10_000
    with pytest.raises(NoLayout, match="too long"):
        expand("n[0-9999]")
    with pytest.raises(NoLayout, match="too long"):
        expand("n[0-99999]", MAX_NODES)


@given(st.text(alphabet="n1[]-, ", max_size=30))
def test_any_list_of_nodes_is_names_or_a_refusal(text: str) -> None:
    try:
        names = expand(text)
    except NoLayout:
        return
    assert all(name and not {"[", "]", ","} & set(name) for name in names)


@pytest.mark.parametrize("name", sorted(NAMES - {"hostfile"}))
def test_a_text_that_no_option_needs_is_refused_by_its_options_name(name: str) -> None:
    long = "1" * (131_073 if name in ("cpu_bind", "mem_bind") else 4097)
    with pytest.raises(NoLayout, match=f"^--{name.replace('_', '-')} is longer than [0-9]+ characters$"):
        request_of({name: long}, {})


def test_a_list_in_a_variable_is_bounded_too() -> None:
    for variable in ("SLURM_CPU_BIND", "SLURM_HINT"):
        with pytest.raises(NoLayout, match="is longer than"):
            request_of({}, {variable: "x" * 131_073})
    with pytest.raises(NoLayout, match="SLURM_HOSTFILE is longer than"):
        request_of({"distribution": "arbitrary"}, {}, "n1\n" * 50_000)


def test_masks_of_hundreds_of_tasks_come_back_to_a_step_within_the_step() -> None:
    masks = ",".join(f"0x{1 << task:0128X}" for task in range(512))
    bind = request_of({}, {"SLURM_CPU_BIND": f"quiet,mask_cpu:{masks}"}).cpu_bind
    assert bind is not None
    assert len(bind.entries) == 512
    # The longest that the kernel takes as a variable, which an outer step may have had.
    listed = ("0x" + "0" * 240 + "1,") * 530 + "0x1"
    assert len(f"SLURM_CPU_BIND=quiet,mask_cpu:{listed}") < 131_072
    assert request_of({}, {"SLURM_CPU_BIND": f"quiet,mask_cpu:{listed}"}).cpu_bind is not None


def test_memory_binding_keeps_the_users_words() -> None:
    assert parse_mem_bind("prefer,v,map_mem:0*2,1") == MemBind(
        "map_mem", entries=(0, 0, 1), listed="0,0,1", verbose=True, prefer=True
    )
    assert parse_mem_bind("sort,nosort,local") == MemBind("local")


def test_the_command_line_goes_before_the_variables() -> None:
    environ = {"SLURM_NTASKS": "8", "SLURM_DISTRIBUTION": "cyclic", "SLURM_OVERCOMMIT": "1", "SLURM_EXACT": "0"}
    request = request_of({"ntasks": 2}, environ)
    assert (request.ntasks, request.distribution, request.overcommit, request.exact) == (
        2,
        Distribution("cyclic"),
        True,
        False,
    )


def test_a_step_need_not_have_the_cpus_per_task_of_its_job() -> None:
    assert request_of({}, {"SLURM_CPUS_PER_TASK": "4"}).cpus_per_task is None
    assert request_of({}, {"SRUN_CPUS_PER_TASK": "4"}).cpus_per_task == 4


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ({"extra_node_info": "2"}, "sockets"),
        ({"extra_node_info": "2:1"}, "cores"),
        ({"extra_node_info": "2:1:1"}, "threads"),
        ({"threads_per_core": 1, "ntasks_per_core": 1}, "threads"),
        ({"ntasks_per_core": 1, "ntasks_per_socket": 1}, "cores"),
        ({"ntasks_per_socket": 1}, "sockets"),
        ({"extra_node_info": "2", "cpu_bind": "threads"}, "threads"),
        ({"threads_per_core": 1, "cpu_bind": "none"}, ""),
        ({"ntasks_per_core": 1, "cpu_bind": "none"}, "cores"),
        ({}, ""),
    ],
)
def test_options_of_geometry_say_what_to_bind_to(given: dict[str, object], unit: str) -> None:
    bind = request_of(given, {}).cpu_bind or CpuBind()
    assert bind.unit == unit


def test_a_hint_stands_for_other_options() -> None:
    request = request_of({"hint": "nomultithread", "cpu_bind": "verbose"}, {})
    assert (request.threads_per_core, request.cpu_bind) == (1, CpuBind("threads", one_thread=True, verbose=True))


@pytest.mark.parametrize("given", [{"cpu_bind": "sockets"}, {"extra_node_info": "1"}, {"ntasks_per_core": 2}])
def test_a_hint_is_ignored_beside_what_says_the_same_more_exactly(given: dict[str, object]) -> None:
    assert request_of({"hint": "nomultithread"} | given, {}) == request_of(given, {})


@pytest.mark.parametrize(
    ("given", "word"),
    [({"ntasks": "x"}, "--ntasks"), ({"cpus_per_task": 0}, "--cpus-per-task"), ({"hint": "bogus"}, "--hint")],
)
def test_a_refusal_names_the_option(given: dict[str, object], word: str) -> None:
    with pytest.raises(NoLayout, match=word):
        request_of(given, {})
