"""Where values come from, and what is made of them."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.bulk import ahead as ahead_module
from nodectl.bulk import lines, sources
from nodectl.bulk.template import Template, base, base_without_extension, directory, without_extension
from nodectl.client.command import BadOption, Failed


def fed(*chunks: bytes) -> int:
    reader, writer = os.pipe()
    for chunk in chunks:
        os.write(writer, chunk)
    os.close(writer)
    return reader


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])), max_size=20), st.booleans())
def test_records_are_those_between_delimiters(records: list[str], ended: bool) -> None:
    if records and not records[-1]:
        ended = True
    data = "\n".join(records).encode() + (b"\n" if ended and records else b"")
    found = lines.Lines(fed(data), "pipe")
    taken = []
    while (record := found.next()) is not None:
        taken.append(record)
    assert taken == records
    assert found.over


@pytest.mark.parametrize(("data", "delimiter", "is_told"), [
    (b"a\r\nb\r\n", b"\n", True), (b"a\nb\r\n", b"\n", False), (b"a\r\0b\r\0", b"\0", False),
])  # fmt: skip
def test_lines_of_dos_are_told_once_and_stay_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, delimiter: bytes, *, is_told: bool
) -> None:
    file = tmp_path / "list"
    file.write_bytes(data)
    found = sources.Sources([sources.Given(file=str(file))], sources.Reading(delimiter))
    found.read()
    values = [found.next(), found.next()]
    assert values == [(record.decode(),) for record in data.split(delimiter)[:2]]
    told = f"nodectl: warning: {file}: lines end with carriage returns (DOS), which are part of the values; dos2unix"
    assert capsys.readouterr().err == (f"{told} removes them\n" if is_told else "")


def test_a_record_may_come_in_pieces_and_hold_any_byte() -> None:
    reader, writer = os.pipe()
    found = lines.Lines(reader, "pipe", b"\0")
    os.write(writer, b"a\n\xff")
    found.read()
    assert found.take() is None
    os.write(writer, b"b\0c\0d")
    found.read()
    assert [found.take(), found.take(), found.take()] == ["a\n\udcffb", "c", None]
    os.close(writer)
    assert [found.next(), found.next()] == ["d", None]
    assert found.fd == -1
    os.close(reader)


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    zero = os.open("/dev/zero", os.O_RDONLY)
    with pytest.raises(Failed, match="a line longer than"):
        lines.Lines(zero, "/dev/zero").next()
    os.close(zero)


def test_a_million_values_are_read_in_the_memory_of_some() -> None:
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        for start in range(0, 1_000_000, 10_000):
            os.write(writer, "".join(f"{number}\n" for number in range(start, start + 10_000)).encode())
        os._exit(0)
    os.close(writer)
    found = sources.Sources([sources.Given(file=f"/dev/fd/{reader}")], sources.Reading())
    before, number = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    while True:
        if (values := found.next()) is not None:
            number += int(values[0] == str(number))
        elif found.fd < 0:
            break
        else:
            found.read()
    os.close(reader)
    os.wait()
    assert number == 1_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


def test_files_are_counted_and_pipes_are_not(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a\nb\nc")
    given = sources.Given(file=str(file))
    assert sources.Sources([given], sources.Reading()).count() == 3
    assert sources.Sources([given, sources.Given(words=["x", "y"])], sources.Reading()).count() == 6
    assert sources.Sources([given], sources.Reading(), per_command=2).count() == 2
    reader = fed(b"a\n")
    assert sources.Sources([sources.Given(file=f"/dev/fd/{reader}")], sources.Reading()).count() is None
    os.close(reader)


def test_a_link_without_a_source_before_it_is_refused() -> None:
    with pytest.raises(BadOption, match="links to a source before it"):
        sources.split(["echo", ":::+", "a"], ())


@pytest.mark.parametrize("text", ["ab", "", "\\x", "\\xzz", "é"])
def test_a_delimiter_is_one_byte(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid delimiter"):
        sources.delimiter(text)


@given(st.text(st.sampled_from("ab./"), max_size=8))
def test_the_parts_of_a_path_are_dirnames_and_basenames(path: str) -> None:
    assert directory(path) == (os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")).rstrip(
        "/"
    ) or directory(path) in ("/", ".")
    assert base(path) == path.rpartition("/")[2]
    assert path.startswith(without_extension(path))
    assert base_without_extension(path) == without_extension(base(path))


@given(st.text(st.sampled_from("{}#%.-/1x ")))
def test_no_template_is_a_mistake(text: str) -> None:
    Template(text).line(("a", "b"), 1)


def test_the_slot_is_marked_and_the_number_is_put_in() -> None:
    template = Template("run {#} {%} {}", slot="MARK")
    assert template.line(("a b",), 7) == "run 7 MARK 'a b'"
    assert (template.has_slot, template.has_number, template.replaces) == (True, True, True)


def test_what_is_read_ahead_comes_first_and_in_its_order() -> None:
    reader, writer = os.pipe()
    found = lines.Lines(reader, "pipe")
    ahead = found.ahead()
    assert ahead is not None
    os.write(writer, b"one\ntw")
    ahead.read()
    os.write(writer, b"o\nthree\n")
    ahead.read()
    assert found.fd != reader, "what can be read without waiting"
    os.write(writer, b"four\n")
    os.close(writer)
    assert [found.next() for _ in range(5)] == ["one", "two", "three", "four", None]
    os.close(reader)


def test_the_end_of_a_pipe_is_seen_after_what_was_read_ahead() -> None:
    reader, writer = os.pipe()
    found = lines.Lines(reader, "pipe")
    ahead = found.ahead()
    assert ahead is not None
    os.write(writer, b"one\n")
    os.close(writer)
    ahead.read()
    ahead.read()
    assert ahead.fd < 0, "nobody polls an ended pipe"
    assert [found.next(), found.next()] == ["one", None]
    os.close(reader)


def test_nothing_is_lost_where_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_RDWR)
    monkeypatch.setattr(ahead_module, "_nameless", lambda: os.dup(full))
    reader, writer = os.pipe()
    found = lines.Lines(reader, "pipe")
    ahead = found.ahead()
    assert ahead is not None
    os.write(writer, b"one\ntwo\n")
    ahead.read()
    assert ahead.fd < 0, "the writer is held back"
    os.close(writer)
    assert [found.next() for _ in range(3)] == ["one", "two", None]
    os.close(reader)
    os.close(full)


def test_a_writer_without_an_end_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_module, "MOST", 6)
    reader, writer = os.pipe()
    found = lines.Lines(reader, "pipe")
    ahead = found.ahead()
    assert ahead is not None
    os.write(writer, b"one\ntwo\n")
    ahead.read()
    assert ahead.fd < 0
    os.close(reader)
    os.close(writer)


def test_a_file_is_not_read_ahead(tmp_path: Path) -> None:
    path = tmp_path / "values"
    path.write_text("one\n", encoding="utf-8")
    with path.open("rb") as file:
        assert lines.Lines(file.fileno(), "values").ahead() is None
