"""Operations as data: what is told of them is always JSON, and what is none is refused before anything reads it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.kernel import _kernel, operations


@given(st.text(max_size=2000), st.text(max_size=2000))
def test_what_is_told_of_a_failure_is_json_however_long_a_path_is(before: str, behind: str) -> None:
    *_, what = operations.enter_directory("/", before, behind)
    parts = what.split(b"\0")
    assert len(parts) == 2
    for part, text in zip(parts, (before, behind), strict=True):
        told = json.loads(b'"%b"' % part)
        assert len(part) <= 700
        if len(json.dumps(text)) <= 702:
            assert told == text
        else:
            assert told != text


@pytest.mark.parametrize(
    "operation",
    [
        (_kernel.OP_SAY, 0, 0, b"x" * 200_000 + b"\0y\0", b"\0"),
        (_kernel.OP_SAY, 0, 0, b"one string", b"\0"),
        (_kernel.OP_ROW, 1, 0, b"two\0strings\0", b"\0"),
        (_kernel.OP_BIND, 0, 64, b"", b"bind to CPUs 0: \0"),
        (_kernel.OP_BIND, 0, 0, b"", b"\0"),
        (10_000, 0, 0, b"", b"\0"),
        (_kernel.OP_UMASK, 0, 0, b"", b"no end"),
        (_kernel.OP_UMASK, 0, 0, b"", b"x" * 2000 + b"\0"),
    ],
    ids=range(8),
)
def test_what_is_no_operation_is_refused(operation: tuple[int, int, int, bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="no operation"):
        _kernel.perform([operation], None)


@pytest.mark.parametrize("variables", [{"A=B": "c"}, {"": "c"}, {"A": "b\0c"}, {"A\0": "b"}])
def test_what_could_be_no_variable_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="illegal environment variable"):
        operations.environment(variables)


@pytest.mark.parametrize(("level", "found"), [(0, (2, 0)), (7, (2, 7)), (8, (3, 0))])
def test_priority_of_input_and_output_is_the_processs_own(level: int, found: tuple[int, int]) -> None:
    code = (
        "import sys, psutil; from nodectl.kernel import _kernel, operations;"
        "_kernel.perform([operations.io_priority(int(sys.argv[1]))], None);"
        "print(*map(int, psutil.Process().ionice()))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, str(level)], capture_output=True, text=True, check=True)
    assert tuple(map(int, done.stdout.split())) == found
