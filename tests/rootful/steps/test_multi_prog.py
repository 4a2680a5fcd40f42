"""--multi-prog: tasks of one step that run different programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootful.node import NOBODY, Node
from rootful.raw import exchange, launch


@pytest.fixture
def file(shared_node: Node, request: pytest.FixtureRequest) -> Path:
    return Path(shared_node.scratch / f"{request.node.name.replace('/', '_')}.conf")


def test_each_task_runs_what_its_line_says(shared_node: Node, file: Path) -> None:
    file.write_text(
        "# who runs what\n"
        "4-5,1 echo of the list %t:%o\n"
        "0     sh -c 'echo \"quoted  words\" $SLURM_PROCID'\n"
        "1     echo never, a line before has it\n"
        "2     echo goes \\\n  on tog\\\nether\n"
        "*     echo the rest %t:%o\n",
        encoding="utf-8",
    )
    done = shared_node.run("-n8", "-l", "--multi-prog", str(file), "more", user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "0: quoted  words 0",
        "1: of the list 1:2 more",
        "2: goes on together more",
        "3: the rest 3:0 more",
        "4: of the list 4:0 more",
        "5: of the list 5:1 more",
        "6: the rest 6:1 more",
        "7: the rest 7:2 more",
    ]


def test_programs_see_their_own_rank_and_end_the_step_together(shared_node: Node, file: Path) -> None:
    file.write_text("0 sh -c 'exit 3'\n1 true\n2 nosuchprogram\n", encoding="utf-8")
    done = shared_node.run("-n3", "--multi-prog", str(file), user=NOBODY)
    assert done.returncode == 3
    assert "task 2: execute 'nosuchprogram': No such file or directory" in done.stderr
    shared_node.assert_clean()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 true\n", "task 1 has no program"),
        ("0-1\n", "line 1: no program behind '0-1'"),
        ("0-2 true\n", "'0-2' is no list of the tasks 0 to 1"),
        ("1-0 true\n", "'1-0' is no list of the tasks"),
        ("x true\n", "'x' is no list of the tasks"),
        ("0,0,0 true\n* true\n", "'0,0,0' is no list of the tasks"),
        ("0 'true\n", "line 1: no closing '"),
        ("# nothing\n", "no program in it"),
        ("* true\n" * 5000, "more than"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(shared_node: Node, file: Path, text: str, reason: str) -> None:
    file.write_text(text, encoding="utf-8")
    done = shared_node.run("-n2", "--multi-prog", str(file), user=NOBODY)
    assert done.returncode == 1
    assert reason in done.stderr


def test_a_file_that_is_not_there_is_named(shared_node: Node) -> None:
    done = shared_node.run("-n2", "--multi-prog", "/nonexistent", user=NOBODY)
    assert done.returncode == 1
    assert "--multi-prog: '/nonexistent': No such file or directory" in done.stderr


def test_a_request_cannot_make_its_runner_write_gigabytes(shared_node: Node, file: Path) -> None:
    file.write_text(f"* echo {'%t' * 50_000}\n", encoding="utf-8")
    done = shared_node.run("-n512", "-O", "--multi-prog", str(file), user=NOBODY)
    assert (done.returncode, "it says too much" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    "programs",
    [
        "a", {}, [1], [[]], [["0"]], [["0", "true"]], [["0", [1]]], [[0, ["true"]]], [["0", ["true"], False]],
        [["0", ["true"], True, True]], [["0", ["true\0"]]], [[["0"], ["true"]]], [["0", ["true"], [True]]],
        [["*", ["true"]]] * 5000, [], [["1", ["true"]]],
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_a_request_of_another_shape_is_refused_and_the_next_is_served(shared_node: Node, programs: object) -> None:
    reply, _ = exchange(shared_node, launch(programs=programs))
    assert reply is not None
    assert "InvalidRequest" in str(reply["error"]) or "InvalidParameter" in str(reply["error"]), reply
    assert shared_node.run("echo", "next", user=NOBODY).stdout == "next\n"
