"""Words for a shell, and lines that need none."""

from __future__ import annotations

import os
import shlex
import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.bulk.shell import Programs, plain_words, quote

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_quoted_value_is_one_word_of_a_shell(value: str) -> None:
    assert shlex.split(quote(value)) == [value]


@given(st.lists(st.text(st.sampled_from(string.ascii_letters + " ',:@%+-./_"), max_size=6), max_size=5))
def test_plain_words_are_those_of_a_shell(words: list[str]) -> None:
    line = " ".join(words)
    found = plain_words(line)
    if found is not None:
        assert found == shlex.split(line)


@given(st.text(st.sampled_from("ab'\"$*?~;|&<>()[]{}#!\\`= \t\n"), max_size=8))
def test_what_may_mean_something_to_a_shell_is_left_to_it(line: str) -> None:
    outside = "".join(line.split("'")[::2])
    if set(outside) & set('"$*?~;|&<>()[]{}#!\\`=\t\n'):
        assert plain_words(line) is None


def test_values_between_quotes_make_words_with_what_stands_beside_them() -> None:
    assert plain_words("echo x'a b'y  '' 'c'") == ["echo", "xa by", "", "c"]
    assert plain_words("echo 'a") is None
    assert plain_words("") == []


def test_a_program_is_executed_without_a_shell() -> None:
    programs = Programs("/bin/sh", ENVIRONMENT, ".")
    assert programs.argv("env a 'b c'") == ["env", "a", "b c"]
    assert programs.argv("/usr/bin/env") == ["/usr/bin/env"]


@pytest.mark.parametrize(
    "line", ["cd /", "a=1 env", "env; env", "env $HOME", "no-such-program", "/etc/passwd", "test -f x", "", "env ~"]
)
def test_what_a_shell_does_or_says_itself_is_left_to_it(line: str) -> None:
    assert Programs("/bin/sh", ENVIRONMENT, ".").argv(line) == ["/bin/sh", "-c", line]


@pytest.mark.parametrize(("line", "direct"), [("echo a", True), ("echo -n a", False), ("true --help", False)])
def test_a_shells_own_program_is_executed_where_both_do_the_same(line: str, direct: bool) -> None:
    assert (Programs("/bin/bash", ENVIRONMENT, ".").argv(line)[0] != "/bin/bash") is direct


@pytest.mark.parametrize(
    ("shell", "environment"),
    [
        ("/bin/zsh", {}),
        ("/usr/bin/fish", {}),
        ("/bin/bash", {"BASH_ENV": "/etc/bash.bashrc"}),
        ("/bin/bash", {"BASH_FUNC_env%%": "() { :; }"}),
    ],
)
def test_a_shell_that_may_know_other_words_is_asked(shell: str, environment: dict[str, str]) -> None:
    assert Programs(shell, ENVIRONMENT | environment, ".").argv("env") == [shell, "-c", "env"]


def test_a_script_without_an_interpreter_is_run_by_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo $0 $1\n")
    script.chmod(0o755)
    argv = Programs("/bin/sh", ENVIRONMENT, str(tmp_path)).argv("./script x")
    assert argv == ["/bin/sh", "-c", "./script x"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "./script x\n"
    script.write_text("#!/bin/sh\n")
    assert Programs("/bin/sh", ENVIRONMENT, str(tmp_path)).argv("./script x") == ["./script", "x"]


def test_the_first_program_in_path_is_the_one_that_counts(tmp_path: Path) -> None:
    for name, text in (("one", "no interpreter\n"), ("two", "#!/bin/sh\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text(text)
        (tmp_path / name / "tool").chmod(0o755)
    path = os.pathsep.join(str(tmp_path / name) for name in ("none", "one", "two"))
    assert Programs("/bin/sh", {"PATH": path}, ".").argv("tool") == ["/bin/sh", "-c", "tool"]
    (tmp_path / "one" / "tool").chmod(0o644)
    assert Programs("/bin/sh", {"PATH": path}, ".").argv("tool") == ["tool"]
