"""PMI_process_mapping, the tasks of each node: (vector,(first node,nodes,tasks of each),...)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Runs = list[tuple[int, int]]


def mapping_of(nodes: "Sequence[Sequence[int]]", most: int) -> bytes:
    """Return the mapping. `nodes`: the tasks of each node, in all the tasks from 0 on.

    A repeated pattern is written once, as readers start again at its end. Empty where the text would be longer than
    `most` bytes: readers then ask each other.
    """
    places = [0] * sum(map(len, nodes))
    for node, tasks in enumerate(nodes):
        for task in tasks:
            places[task] = node
    runs = _runs(places)
    text = b"(vector,%b)" % b",".join(b"(%d,%d,%d)" % block for block in _blocks(runs[: _period(runs)]))
    return text if len(text) <= most else b""


def _runs(places: "Sequence[int]") -> "Runs":
    """Return the runs of consecutive tasks on the same node, as pairs of node and length."""
    runs: Runs = []
    for node in places:
        if runs and runs[-1][0] == node:
            runs[-1] = node, runs[-1][1] + 1
        else:
            runs.append((node, 1))
    return runs


def _period(runs: "Runs") -> int:
    """Return the length of the runs' repeated pattern, valid up to the end; the last run may be shorter."""
    *all_but_last, (node, count) = runs
    for period in range(1, len(runs)):
        if runs[period][0] != runs[0][0]:
            continue
        same_node, most = runs[(len(runs) - 1) % period]
        if same_node == node and count <= most and all(
            one == runs[place % period] for place, one in enumerate(all_but_last)
        ):  # fmt: skip
            return period
    return len(runs)


def _blocks(runs: "Runs") -> "list[tuple[int, int, int]]":
    """Merge equal runs on consecutive nodes; return the blocks as first node, nodes, tasks of each node."""
    blocks: list[tuple[int, int, int]] = []
    for node, count in runs:
        if blocks:
            first, nodes, tasks = blocks[-1]
            if first + nodes == node and tasks == count:
                blocks[-1] = first, nodes + 1, tasks
                continue
        blocks.append((node, 1, count))
    return blocks
