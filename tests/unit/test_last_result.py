"""The line of docs/testing.md that a run of all tests writes."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

import pytest

from rings import last_result

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    page = tmp_path / last_result.PAGE
    page.parent.mkdir()
    page.write_text(f"# Testing\n\n{last_result.MARK}\nnever\n\nMore.\n")
    (tmp_path / "source").write_text("1\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "one")):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    return tmp_path


def written(tree: Path) -> list[str]:
    return (tree / last_result.PAGE).read_text().splitlines()


def test_line_is_replaced_again_and_again_and_nothing_else(tree: Path) -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    commit = last_result.commit(tree)
    for count in (3210, 3211):
        last_result.write(tree, f"===== {count} passed in 9.00s =====")
        told = f"The last complete run: {today.isoformat()}, commit {commit}, {count} passed in 9.00s."
        assert written(tree) == ["# Testing", "", last_result.MARK, told, "", "More."]


def test_changes_that_are_not_committed_are_told_but_not_the_line_itself(tree: Path) -> None:
    last_result.write(tree, "1 passed in 9.00s")
    assert "with changes" not in last_result.commit(tree)
    (tree / "source").write_text("2\n")
    assert last_result.commit(tree).endswith(" with changes")


def test_page_without_a_place_for_it_is_left_alone(tree: Path) -> None:
    page = tree / last_result.PAGE
    page.write_text("# Testing\n")
    with pytest.raises(ValueError, match="no line"):
        last_result.write(tree, "1 passed in 9.00s")
    assert page.read_text() == "# Testing\n"


def test_tree_without_git_is_unknown(tmp_path: Path) -> None:
    assert last_result.commit(tmp_path) == "unknown"


def test_the_page_has_a_place_for_it() -> None:
    assert (ROOT / last_result.PAGE).read_text(encoding="utf-8").count(f"{last_result.MARK}\n") == 1
