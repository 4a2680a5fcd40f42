"""Components between colons, `-n1 server : -n4 client`: a single step with a program for each component.

srun has a job of several parts for them, on machines that differ; the ranks go on from one to the next, as here.
Components cannot ask for different machines on a single machine.
"""

from typing import TYPE_CHECKING

from nodectl.client.command import NO_PROGRAM, BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodectl.client.run_options import Parsed, RunParser

_COLON = ":"
_OWN = frozenset({"ntasks", "name"})  # what each component may have of its own


def read(parser: "RunParser", words: "Sequence[str]") -> "Parsed":
    """Return the common request of all components. Raises BadOption."""
    parts = [parser.parse(part) for part in _split(words)]
    first = parts[0]
    if len(parts) == 1 or not first.argv:
        return first
    rows: list[list[object]] = []
    begin = 0
    for number, part in enumerate(parts):
        if not part.argv:
            raise BadOption(f"component {number}: {NO_PROGRAM}", subject="program")
        if "multi_prog" in part.values:
            raise BadOption("--multi-prog says what tasks run, and so do colons: give either")
        _compare(number, first, part)
        ntasks = int(str(part.values.get("ntasks", 1)))
        rows.append([f"{begin}-{begin + ntasks - 1}", part.argv, True])
        begin += ntasks
    first.values["ntasks"] = begin
    first.values["programs"] = rows
    return first


def _split(words: "Sequence[str]") -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == _COLON:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _compare(number: int, first: "Parsed", part: "Parsed") -> None:
    """Refuse a component with values different from the first component's. Raises BadOption."""
    for name, value in part.values.items():
        if name not in _OWN and name != "ignored" and first.values.get(name) != value:
            option = name.replace("_", "-")
            raise BadOption(f"component {number}: --{option} is not as of the first one: they share one step here")
