"""Asks GNU parallel what it makes of command lines, and writes the answers down beside this file, for
test_as_parallel.py. By hand, where parallel is installed: python3 tests/unit/bulk/record.py
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

ANSWERS = Path(__file__).with_name("parallel.json")
FILES = {"f1": "l1\nl2\n", "f2": "m1\nm2", "t": "n\ta b\n1\tx y\n2\tz/w.c\n", "empty": ""}
PATHS = ["a/b.c.d", "/x/y", "a.b/c", "..", ".h", "dir/", "a/.h", "x.", "/", "//a", "a b/c d.e", "a/b/", "a//b", "a.b."]
ODD = [
    "'",
    "''",
    "a'b",
    "'a",
    "a'",
    "",
    " ",
    "a\tb",
    "$x",
    "`x`",
    "a\\b",
    "~",
    "a=b",
    "-x",
    "*?[x]",
    "{x}",
    "a,b:c@d%e^f",
]
CASES: list[tuple[list[str], str]] = [
    (["echo", "{}", ":::", *ODD], ""),
    (["echo", "x{}y", ":::", *ODD, "é", "日本"], ""),
    (["echo {.} {/} {//} {/.} {#} {1} {1.} {1/} {1//} {1/.} {-1} {-1/.}", ":::", *PATHS], ""),
    (["echo", ":::", "a", "b c"], ""),
    (["echo {#}", ":::", "a", "b"], ""),
    (["echo {} {}", ":::", "a b"], ""),
    (["{} z {}", ":::", "a b"], ""),
    (["x{}y", ":::", "a b"], ""),
    (["{#} {}", ":::", "a b"], ""),
    ([" {}z {}", ":::", "a b"], ""),
    (['"{}" {}', ":::", "a b"], ""),
    (["ls {}/x ; {}", ":::", "a b"], ""),
    (["{1}; echo {2}", ":::", "a b", ":::", "c d"], ""),
    ([":::", "echo a", "echo 'b c'; x"], ""),
    ([":::", "a", "b", ":::", "c", "d"], ""),
    (["echo {2} {1} {-1} {-2.}", ":::", "a", "b", ":::", "1.x", "2.y"], ""),
    (["echo {1}{3.}", ":::", "a", ":::", "b"], ""),
    (["echo", ":::", "a", "b", ":::", "1", "2", ":::", "x y"], ""),
    (["--link", "echo", ":::", "a", "b", "c", ":::", "1", "2"], ""),
    (["echo", ":::", "a", "b", "c", ":::+", "1", "2"], ""),
    (["echo", ":::", "a", "b", "c", ":::+", "1", "2", "3", "4", ":::", "X", "Y"], ""),
    (["echo", ":::", "X", "Y", ":::", "a", "b", ":::+", "1", "2"], ""),
    (["echo", "::::", "f1", "f2"], ""),
    (["-a", "f1", "-a", "f2", "echo"], ""),
    (["-a", "f1", "echo {2} {1}", ":::", "x"], ""),
    (["echo", ":::", "x", "::::", "f2"], ""),
    (["-a", "-", "echo", "::::", "f2"], "s1\n"),
    (["-a", "f1", "echo", "::::", "-", "f2"], "s1\n"),
    (["echo", "::::", "f1", "::::+", "f2"], ""),
    (["echo", "::::", "empty"], ""),
    (["-N2", "echo {1} {2} {}", ":::", "a", "b", "c"], ""),
    (["-N2", "echo", ":::", "a b", "b", "c"], ""),
    (["-N0", "echo hi", ":::", "a", "b"], ""),
    (["-N3", "echo {3}-{1}", ":::", "a", "b", "c", "d"], ""),
    (["echo"], "a\n\n\nb c\n"),
    (["-r", "echo"], "a\n\nb\n"),
    ([], "echo a\n\necho b; c\n"),
    (["echo"], "no end"),
    (["echo"], "a\r\nb\n"),
    (["-0", "echo"], "a\nb\0c d\0"),
    (["-d", ",", "echo"], "a,b c,d"),
    (["-d", "\\t", "echo"], "a\tb c"),
    (["-I", ",,", "echo {} ,,", ":::", "a b"], ""),
    (["-q", "echo", "{1}", "a b", '"x"', "x'y", "{#}", ":::", "a b"], ""),
    (["-q", "echo", "a b", ":::", "c d"], ""),
    (["-q", "{}", "{} b", ":::", "c d"], ""),
    (["--colsep", "\\t", "echo {2} {1}"], "a b\tc\nd\n"),
    (["--colsep", ":", "echo"], "a:b c\n"),
    (["-C", "[,;]", "echo {3}", ":::", "a,b;c d"], ""),
    (["--colsep", "\\t", "--header", ":", "echo {a b} {n} {a b/.}", "::::", "t"], ""),
    (["--header", ":", "echo {x} {y/}", ":::", "x", "1", "2", ":::", "y", "a/b"], ""),
    (["echo", "a", "  b", "'{}'", '"{}"', ":::", "x y"], ""),
    (["echo {", "}", ":::", "x"], ""),
    (["echo {a} {-} {0x} {+1}", ":::", "x"], ""),
    (["echo {01} {1}", ":::", "x"], ""),
    (["echo", ":::", "a\nb"], ""),
    (["-0", "echo", ":::", "a\nb"], ""),
    (["echo a", "#", ":::", "x"], ""),
    (["true"], ""),
]


def main() -> None:
    """Writes the answers anew."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name, text in FILES.items():
            Path(place, name).write_text(text)
        for words, stdin in CASES:
            asked = ["parallel", "--will-cite", "-k", "--dry-run", *words]
            done = subprocess.run(asked, input=stdin.encode(), capture_output=True, check=False, cwd=place)
            rows.append([words, stdin, done.stdout.decode()])
    text = json.dumps({"files": FILES, "rows": rows}, indent=1)
    ANSWERS.write_text(text + "\n")


if __name__ == "__main__":
    main()
