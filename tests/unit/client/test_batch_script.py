"""Batch scripts: their lines of options, and what is refused before it is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.client import batch_script
from nodectl.client.command import BadOption, Failed

HEAD = "#!/bin/sh\n"


def words(text: str) -> list[list[str]]:
    return [words for _, words in batch_script.option_lines(text)]


def test_lines_of_options_stand_before_the_first_command() -> None:
    text = HEAD + "#SBATCH -n4\n# a comment\n\n#NODECTL --mem=1G -c 2\n  # indented\necho\n#SBATCH -n9\n"
    assert words(text) == [["-n4"], ["--mem=1G", "-c", "2"]]


def test_a_line_knows_its_number() -> None:
    assert batch_script.option_lines(HEAD + "\n#NODECTL\t-n4\n") == [("line 3: #NODECTL", ["-n4"])]


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        (' -J "two words"', ["-J", "two words"]),
        (" -J 'a\"b'", ["-J", 'a"b']),
        (r" --comment=a\ b\"c", ['--comment=a b"c']),
        (" --x=\"a\"b'c'", ["--x=abc"]),
        (" -n4 # four of them", ["-n4"]),
        (" -J a#b", ["-J", "a#b"]),
        (' -o ""', ["-o", ""]),
        (" ", None),
        ("", None),
    ],
)
def test_quotes_and_comments_are_as_in_a_shell(rest: str, found: list[str] | None) -> None:
    assert words(f"{HEAD}#SBATCH{rest}\n") == ([] if found is None else [found])


@pytest.mark.parametrize("line", ["#SBATCHES -n4", "##SBATCH -n4", " #SBATCH -n4", "#sbatch -n4", "# SBATCH -n4"])
def test_other_comments_are_comments(line: str) -> None:
    assert words(f"{HEAD}{line}\n") == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('#SBATCH -J "open', 'line 2: #SBATCH: no closing "'),
        ("#NODECTL 'open", "line 2: #NODECTL: no closing '"),
        ("#SBATCH hetjob", "line 2: #SBATCH hetjob: jobs of several components need several machines"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(line: str, why: str) -> None:
    with pytest.raises(BadOption) as caught:
        batch_script.option_lines(f"{HEAD}{line}\n")
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"echo hello\n", "its first line is not #!"),
        (b"\x7fELF\x02\x01\0\0", "a binary file"),
        (b"#!/bin/sh\n\0", "a binary file"),
        (b"#!/bin/sh\r\necho\r\n", "carriage returns"),
    ],
)
def test_what_is_no_script_is_refused_in_one_line(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "job"
    path.write_bytes(data)
    with pytest.raises(Failed, match=why) as caught:
        batch_script.read(str(path))
    assert "\n" not in str(caught.value)


def test_a_script_of_a_hundred_megabytes_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "job"
    with path.open("wb") as file:
        file.write(b"#!/bin/sh\n")
        file.truncate(100 << 20)
    with pytest.raises(Failed, match="longer than 64 MiB"):
        batch_script.read(str(path))


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="No such file or directory"):
        batch_script.read(str(tmp_path / "missing"))
    with pytest.raises(Failed, match="Is a directory"):
        batch_script.read(str(tmp_path))


def test_bytes_that_are_no_text_arrive(tmp_path: Path) -> None:
    path = tmp_path / "job"
    path.write_bytes(b"#!/bin/sh\necho \xff\n")
    assert batch_script.read(str(path)).encode("utf-8", "surrogateescape") == b"#!/bin/sh\necho \xff\n"
