"""What a plugstack.conf means, line by line."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.spank import plugstack


def read(tmp_path: Path, text: str | bytes, *dirs: str) -> plugstack.Plugstack:
    conf = tmp_path / "plugstack.conf"
    conf.write_bytes(text if isinstance(text, bytes) else text.encode())
    return plugstack.read(str(conf), dirs)


def paths(stack: plugstack.Plugstack) -> list[str]:
    return [entry.path for entry in stack.entries]


def warnings(tmp_path: Path, text: str | bytes) -> list[str]:
    stack = read(tmp_path, text)
    return [line.removeprefix(f"{tmp_path}/plugstack.conf:") for line in stack.warnings]


def test_line_gives_plugin_arguments_and_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "renice.so").touch()
    text = f"# first\n\n required\t{tmp_path}/renice.so  min_prio=-10\tverbose\noptional /absent.so\n"
    first, second = read(tmp_path, text).entries
    assert (first.path, first.argv) == (f"{tmp_path}/renice.so", ("min_prio=-10", "verbose"))
    assert (first.required, first.missing) == (True, False)
    assert first.origin == f"{tmp_path}/plugstack.conf:3"
    assert (second.path, second.argv, second.required) == ("/absent.so", (), False)
    assert second.missing


def test_comment_begins_inside_a_word(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, "optional /x.so a#b c\n#optional /y.so\n").entries
    assert entry.argv == ("a",)


def test_nothing_can_be_quoted(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, "optional /x.so 'a b' \\# $HOME\n").entries
    assert entry.argv == ("'a", "b'", "\\")


def test_bytes_that_are_no_text_reach_the_plugin_unchanged(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, b"optional /x.so \xff\xa0\n").entries
    assert os.fsencode(entry.argv[0]) == b"\xff\xa0"


def test_plugin_listed_twice_is_there_twice(tmp_path: Path) -> None:
    assert paths(read(tmp_path, "optional /x.so\noptional /x.so")) == ["/x.so", "/x.so"]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_empty_file_is_an_empty_stack(tmp_path: Path, text: str) -> None:
    stack = read(tmp_path, text)
    assert (stack.entries, stack.warnings) == ((), ())


def test_missing_file_is_an_empty_stack(tmp_path: Path) -> None:
    assert plugstack.read(str(tmp_path / "absent"), ()).entries == ()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Required /x.so", "2: line begins with 'Required' and not with required, optional"),
        ("required", "2: no plugin after 'required'"),
        ("include # nothing", "2: no file after 'include'"),
        ("optional /a\0b", "2: line with a NUL byte is left out"),
        ("r\x1bed /x", "2: line begins with 'r\\x1bed'"),
    ],
)
def test_bad_line_is_named_and_left_out(tmp_path: Path, line: str, words: str) -> None:
    text = f"optional /a.so\n{line}\noptional /b.so\n"
    assert paths(read(tmp_path, text)) == ["/a.so", "/b.so"]
    (warning,) = warnings(tmp_path, text)
    assert warning.startswith(words)
    assert warning.isprintable()


def test_carriage_return_is_dropped_with_a_warning(tmp_path: Path) -> None:
    assert paths(read(tmp_path, "optional /a.so\r\n")) == ["/a.so"]
    assert warnings(tmp_path, "optional /a.so\r\n")[0].startswith("1: line ends with a carriage")


def test_relative_plugin_is_searched_in_each_directory_and_its_folder(tmp_path: Path) -> None:
    (tmp_path / "one" / "spank").mkdir(parents=True)
    (tmp_path / "two").mkdir()
    for name in ("one/spank/a.py", "one/b.so", "two/a.py", "two/b.so", "two/c.py", "two/d.so.1"):
        (tmp_path / name).touch()
    (tmp_path / "one" / "a").mkdir()
    dirs = (f"{tmp_path}/one", f"{tmp_path}/two")
    text = "".join(f"optional {name}\n" for name in ("a", "b.so", "c", "d.so.1", "b", "absent.so"))
    stack = read(tmp_path, text, *dirs)
    found = [path.removeprefix(f"{tmp_path}/") for path in paths(stack)]
    assert found == ["one/spank/a.py", "one/b.so", "two/c.py", "two/d.so.1", "one/b.so", "absent.so"]
    assert [entry.missing for entry in stack.entries] == [False] * 5 + [True]


def test_include_reads_matches_in_order_relative_to_its_own_file(tmp_path: Path) -> None:
    odd = tmp_path / "odd[x]"
    (odd / "conf.d" / "folder").mkdir(parents=True)
    for name in ("10-b", "9-c", "05-a", ".hidden"):
        (odd / "conf.d" / name).write_text(f"optional /{name}.so\n")
    (odd / "more").write_text("include conf.d/*\noptional /more.so\n")
    stack = read(tmp_path, "include odd[[]x]/more dropped\noptional /last.so\n")
    assert paths(stack) == ["/05-a.so", "/10-b.so", "/9-c.so", "/more.so", "/last.so"]
    assert stack.entries[0].origin == f"{odd}/conf.d/05-a:1"
    dropped, folder = stack.warnings
    assert "words after" in dropped
    assert folder == f"{odd}/more:1: {odd}/conf.d/folder is a directory and is left out"


@pytest.mark.parametrize("pattern", ["absent", "absent/*.conf", "[", "*["])
def test_include_without_a_match_is_nothing(tmp_path: Path, pattern: str) -> None:
    stack = read(tmp_path, f"include {pattern}\noptional /x.so\n")
    assert (paths(stack), stack.warnings) == (["/x.so"], ())


@pytest.mark.parametrize("pattern", ["plugstack.conf", "./*.conf", "other", "link"])
def test_include_that_comes_back_is_refused(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "other").write_text("include plugstack.conf\n")
    (tmp_path / "link").symlink_to("plugstack.conf")
    with pytest.raises(plugstack.PlugstackError, match=r":1: .* includes itself"):
        read(tmp_path, f"include {pattern}\n")


def test_includes_that_multiply_are_refused(tmp_path: Path) -> None:
    for level in range(5):
        (tmp_path / f"level{level}").write_text(f"include level{level + 1}\n" * 10)
    (tmp_path / "level5").touch()
    with pytest.raises(plugstack.PlugstackError, match="more than 256 files"):
        read(tmp_path, "include level0\n")


def test_same_file_may_be_included_twice(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("optional /a.so\n")
    assert paths(read(tmp_path, "include a\ninclude a\n")) == ["/a.so", "/a.so"]


def test_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(plugstack.PlugstackError, match="circle: Too many levels"):
        plugstack.read(str(tmp_path / "circle"), ())
    with pytest.raises(plugstack.PlugstackError, match=r"plugstack\.conf:1: .*Not a directory"):
        read(tmp_path, "include plugstack.conf/x\n")
    with pytest.raises(plugstack.PlugstackError, match="Is a directory"):
        plugstack.read(str(tmp_path), ())


def test_included_file_that_others_can_write_is_an_error_for_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open").touch()
    (tmp_path / "open").chmod(0o666)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(plugstack.PlugstackError, match="not trusted"):
        read(tmp_path, "include open\n")


# No absolute patterns: these would walk the machine that runs the tests.
WORD = st.one_of(
    st.sampled_from(["required", "optional", "include", "a.so", "plugstack.conf", "other", "*"]),
    st.text("ab*?[]!-.#\\'\"\r\v\x85\0\udcff\xe9~", max_size=12),
)
LINE = st.lists(WORD, max_size=5).flatmap(
    lambda words: st.sampled_from([" ", "\t", "  "]).map(lambda gap: gap.join(words))
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINE, max_size=6), st.lists(LINE, max_size=3))
def test_any_text_is_a_stack_or_a_clean_refusal(first: list[str], second: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        conf = Path(directory) / "plugstack.conf"
        conf.write_bytes("\n".join(first).encode(errors="surrogateescape"))
        (Path(directory) / "other").write_bytes("\n".join(second).encode(errors="surrogateescape"))
        stack = plugstack.Plugstack((), ())
        refused = directory
        try:
            stack = plugstack.read(str(conf), (directory,))
        except plugstack.PlugstackError as error:
            refused = str(error)
        assert refused.startswith(directory)
        assert refused.isprintable()
        assert all(line.startswith(directory) and line.isprintable() for line in stack.warnings)
        assert all(entry.path and "\0" not in entry.path for entry in stack.entries)


def settled(read_it: Callable[[], plugstack.Plugstack]) -> plugstack.Plugstack:
    """A stack whose files were not touched for some ticks of the clock."""
    deadline = time.monotonic() + 10
    while not (stack := read_it()).is_current():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return stack


CHANGES: dict[str, Callable[[Path], object]] = {
    "a line": lambda top: (top / "plugstack.conf").open("a").write("# more\n"),
    "the file removed": lambda top: (top / "plugstack.conf").unlink(),
    "an included file": lambda top: (top / "conf.d/a.conf").write_text("optional two\n"),
    "a file beside the included ones": lambda top: (top / "conf.d/b.conf").write_text("optional two\n"),
    "an included file removed": lambda top: (top / "conf.d/a.conf").unlink(),
    "a plugin that comes first now": lambda top: (top / "plugins/one.py").write_text(""),
    "a plugin removed": lambda top: (top / "plugins/spank/one.py").unlink(),
    "a plugin named by its path": lambda top: (top / "direct.py").unlink(),
    "permissions": lambda top: (top / "plugstack.conf").chmod(0o600),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_stack_is_current_until_something_that_had_a_say_in_it_changes(tmp_path: Path, change: str) -> None:
    (tmp_path / "plugins/spank").mkdir(parents=True)
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "plugins/spank/one.py").touch()
    (tmp_path / "direct.py").touch()
    (tmp_path / "conf.d/a.conf").write_text("optional one\n")
    conf = tmp_path / "plugstack.conf"
    conf.write_text(f"required one\ninclude conf.d/*\nrequired {tmp_path}/direct.py\n")
    stack = settled(lambda: plugstack.read(str(conf), [str(tmp_path / "plugins")]))
    assert stack.is_current()
    CHANGES[change](tmp_path)
    assert not stack.is_current()


def test_a_stack_that_was_read_just_after_a_change_is_read_again(tmp_path: Path) -> None:
    conf = tmp_path / "plugstack.conf"
    conf.write_text("required one\n")
    assert not plugstack.read(str(conf), []).is_current()
