"""Whole nodes out of a row: enough of them, the required ones, as few runs as possible."""

from __future__ import annotations

from bitarray import bitarray
from hypothesis import example, given
from hypothesis import strategies as st

from nodectl.selection.linear.runs import Amounts, NodeWish, choose

LENGTH = 40
ROWS = st.lists(st.booleans(), min_size=1, max_size=LENGTH).map(bitarray)


def text(chosen: bitarray | None) -> str:
    return "refused" if chosen is None else chosen.to01()


def one_each(row: str, *, least: int = 1, most: int = 99, wanted: int = 0, cpus: int = 0, **more: object) -> str:
    required = more.get("required")
    wish = NodeWish(least, most, wanted or least, cpus, bitarray(required) if isinstance(required, str) else None)
    wish.contiguous = bool(more.get("contiguous"))
    each = more.get("each")
    return text(choose(bitarray(row), Amounts(1) if each is None else Amounts(0, each), wish))  # type: ignore[arg-type]


def test_tightest_run_that_suffices_is_taken() -> None:
    assert one_each("111100110111", least=2) == "000000110000"
    assert one_each("111100110111", least=3) == "000000000111"


def test_of_runs_that_are_alike_the_first_is_taken() -> None:
    assert one_each("110110110", least=2) == "110000000"


def test_fewest_runs_are_taken_where_none_suffices() -> None:
    assert one_each("1101111001110", least=6) == "1101111000000"
    assert one_each("1101111001110", least=7) == "0001111001110"
    assert one_each("1110111001000", least=6) == "1110111000000"


def test_required_nodes_are_taken_first_and_from_there_upwards() -> None:
    assert one_each("1111111111", least=3, required="0000010000") == "0000011100"
    assert one_each("1111111111", least=4, required="0000000010") == "0000001111"
    assert one_each("1110011111", least=2, required="0100000000") == "0110000000"


def test_required_node_that_is_not_there_is_a_refusal() -> None:
    assert one_each("1011", least=1, required="0100") == "refused"


def test_contiguous_job_gets_one_run_or_nothing() -> None:
    assert one_each("1101110", least=3, contiguous=True) == "0001110"
    assert one_each("1101110", least=4, contiguous=True) == "refused"
    assert one_each("1111101111", least=2, contiguous=True, required="0000100010") == "refused"
    assert one_each("1111111111", least=3, contiguous=True, required="0001000100") == "0001111100"


def test_more_cpus_take_more_nodes() -> None:
    assert one_each("1111", cpus=5, each=[2, 2, 2, 2]) == "1110"
    assert one_each("1111", most=2, cpus=5, each=[2, 2, 2, 2]) == "refused"


def test_biggest_nodes_are_taken_where_few_are_allowed() -> None:
    assert one_each("111111", most=2, cpus=16, each=[1, 8, 1, 1, 8, 1]) == "010010"


@given(
    ROWS,
    st.integers(1, 8),
    st.integers(0, 8),
    st.integers(0, 60),
    st.lists(st.integers(1, 9), min_size=LENGTH, max_size=LENGTH),
    st.booleans(),
    st.booleans(),
    st.data(),
)
@example(bitarray("1"), 1, 0, 0, [1] * LENGTH, False, False, None)
def test_choice_keeps_to_the_wish(  # what hypothesis draws
    row: bitarray, least: int, more: int, cpus: int, each: list[int], alike: bool, contiguous: bool,
    data: st.DataObject | None,
) -> None:  # fmt: skip
    amounts = Amounts(each[0]) if alike else Amounts(0, each[: len(row)])
    size = [each[0]] * len(row) if alike else each
    there = list(row.search(1))
    named = data.draw(st.sets(st.sampled_from(there), max_size=3)) if there and data is not None else set()
    required = bitarray(node in named for node in range(len(row))) if named else None
    least = max(least, len(named))
    wish = NodeWish(least, least + more, least + more // 2, cpus, required, contiguous)
    chosen = choose(row, amounts, wish)
    if chosen is None:
        if not contiguous and (alike or least + more >= len(there)):
            needed = max(least, -(-cpus // each[0])) if alike else least
            whole = sum(size[node] for node in there)
            assert needed > min(len(there), least + more) or whole < cpus
        return
    taken = list(chosen.search(1))
    assert not (chosen & ~row).any()
    assert named <= set(taken)
    assert least <= len(taken) <= least + more
    assert sum(size[node] for node in taken) >= cpus
    if contiguous:
        assert taken[-1] - taken[0] + 1 == len(taken)
