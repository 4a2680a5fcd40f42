"""Where nodectl differs from the measurements on purpose, or because their rule is not known."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.cases import Case


@dataclass(frozen=True)
class Row:
    """`words`: options that all cases of the row have; `refusal`: what was measured, None where it ran."""

    name: str
    mode: str
    words: tuple[str, ...]
    refusal: str | None
    reason: str

    def covers(self, case: Case) -> bool:
        row = case.row
        return row["mode"] == self.mode and set(self.words) <= set(row["args"]) and row.get("refusal") == self.refusal


DIFFERENCES = (
    Row(
        "rank without a CPU",
        "step",
        ("--cpu-bind=rank", "-O"),
        "not started",
        "Slurm starts no task and srun exits with 0: no CPU has the number of the last tasks. nodectl refuses the step",
    ),
    Row(
        "planes that a job of several nodes cannot take",
        "job",
        ("-m", "plane=2", "-c4", "-N4", "-n10"),
        "too many CPUs",
        "Slurm makes a job of 40 CPUs on four nodes and then has no room for its step; with cyclic it has. One case"
        " does not tell the rule, and a step whose job has the CPUs runs",
    ),
    Row(
        "a job with a limit of memory",
        "job",
        ("--mem=100",),
        None,
        "Only these jobs without -m have SLURM_DISTRIBUTION, which is block; in nodectl none has",
    ),
)
