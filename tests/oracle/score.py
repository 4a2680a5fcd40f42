"""How many cases come out as measured: `.venv/bin/python3 -P tests/oracle/score.py [-v] [MACHINE] [MODE] [GROUP]`.

One row a machine, one column a mode; `-v` prints every case that differs, and by what.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracle.cases import differences, every_case

MODES = ("step", "job", "alloc", "frag")


def main() -> None:
    verbose = "-v" in sys.argv
    words = {word for word in sys.argv[1:] if word != "-v"}
    right: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    started = time.monotonic()
    for case in every_case():
        name, mode = case.machine.name, case.row["mode"]
        if not words <= {name, mode, case.row["group"]}:
            continue
        total[name, mode] += 1
        wrong = differences(case)
        right[name, mode] += not wrong
        if wrong and verbose:
            print(case)
            for field, (wanted, got) in wrong.items():
                print(f"      {field}: measured {wanted}\n      {' ' * len(field)}  nodectl  {got}")
    for name in dict.fromkeys(name for name, _ in total):
        row = "".join(f"{right[name, mode]:>6}/{total[name, mode]:<4}" for mode in MODES)
        print(f"{name:<22}{row}")
    print(f"{right.total()} of {total.total()} = {100 * right.total() / total.total():.2f} %, ", end="")
    print(f"{time.monotonic() - started:.1f} s; columns: {' '.join(MODES)}")


if __name__ == "__main__":
    main()
