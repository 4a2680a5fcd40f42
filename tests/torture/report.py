"""What a campaign has found: counts beside what they have to be, as a table for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass
class Row:
    """One line; `most` is the bar, None where the figure only tells. `timed`: it depends on how busy the machine is."""

    what: str
    value: float
    most: float | None = None
    unit: str = ""
    timed: bool = False

    @property
    def held(self) -> bool:
        return self.most is None or self.value <= self.most


@dataclass
class Report:
    """The rows, and in words what was wrong."""

    seed: int
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, what: str, value: float, most: float | None = None, unit: str = "", *, timed: bool = False) -> None:
        self.rows.append(Row(what, round(value, 6), most, unit, timed))

    @property
    def held(self) -> bool:
        return all(row.held for row in self.rows)

    def as_json(self) -> dict[str, object]:
        rows = [{**asdict(row), "held": row.held} for row in self.rows]
        return {"seed": self.seed, "held": self.held, "rows": rows, "problems": self.problems}

    def text(self) -> str:
        lines = [f"{'what':56} {'figure':>12}  {'may be':>10}"]
        for row in self.rows:
            most = "" if row.most is None else f"<= {row.most:g}{row.unit and ' ' + row.unit}"
            figure = f"{row.value:,.0f}" if row.value == int(row.value) else f"{row.value:.1f}"
            mark = "" if row.held else "  NOT HELD"
            lines.append(f"{row.what:56} {figure + (row.unit and ' ' + row.unit):>12}  {most:>10}{mark}")
        lines += ["", *(f"- {problem}" for problem in self.problems)] if self.problems else []
        lines += ["", f"{'everything held' if self.held else 'NOT EVERYTHING HELD'}; --seed {self.seed}"]
        return "\n".join(lines)
