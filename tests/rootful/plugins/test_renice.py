"""The renice plugin that comes with nodectl, and its twin in C, which nobody should be able to tell from it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from rootful.native import TWINS, twin
from rootful.node import NOBODY, Node, running


@pytest.fixture(scope="module", params=TWINS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def node(kind: str) -> Iterator[Node]:
    with running() as started:
        started.plugstack(f"required {twin(started, 'renice', kind)} min_prio=-5\n")
        yield started


@pytest.mark.parametrize(
    ("words", "env", "prio", "message"),
    [
        (("--renice=7",), {}, "7", ""),
        (("--renice=0",), {}, "0", ""),
        (("--ren=19",), {}, "19", ""),
        ((), {}, "0", ""),
        ((), {"SLURM_RENICE": "11"}, "11", ""),
        (("--renice=7",), {"SLURM_RENICE": "11"}, "7", ""),
        (("--renice=-3",), {}, "-3", ""),
        (("--renice=-15",), {}, "-5", "-15 is below the lowest allowed value, -5 is used"),
        ((), {"SLURM_RENICE": "-15"}, "-5", "-15 is below the lowest allowed value, -5 is used"),
    ],
)
def test_tasks_get_the_nice_value(
    node: Node, words: tuple[str, ...], env: dict[str, str], prio: str, message: str
) -> None:
    done = node.run("-n2", *words, "--", "nice", user=NOBODY, env=env)
    assert (done.returncode, done.stdout.split()) == (0, [prio, prio]), done.stderr
    assert message in done.stderr
    assert done.stderr.count("below the lowest") <= 2
    if not message:
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "env", "message"),
    [
        (("--renice=foo",), {}, "--renice=foo: not a number from -20 to 20"),
        (("--renice=21",), {}, "--renice=21: not a number"),
        (("--renice=-21",), {}, "--renice=-21: not a number"),
        (("--renice",), {}, "not a number from -20 to 20"),
        ((), {"SLURM_RENICE": "foo"}, "SLURM_RENICE=foo: not a number from -20 to 20"),
    ],
)
def test_what_is_no_nice_value_refuses_the_step(
    node: Node, words: tuple[str, ...], env: dict[str, str], message: str
) -> None:
    done = node.run(*words, "--", "echo", "ran", user=NOBODY, env=env)
    assert done.returncode != 0
    assert done.stdout == ""
    assert message in done.stderr
    node.assert_clean()


def test_help_shows_the_option_among_the_plugins(node: Node) -> None:
    done = node.run("--help", user=NOBODY)
    assert done.returncode == 0
    assert "--renice" in done.stdout.partition("Options provided by plugins:")[2]


def test_verbose_tells_which_task_was_reniced(node: Node) -> None:
    done = node.run("-n2", "-v", "--renice=4", "--", "true", user=NOBODY)
    assert "renice: nice values from -5 upwards are allowed" in done.stderr
    assert len(re.findall(r"renice: task [01], pid \d+: nice value 4$", done.stderr, re.MULTILINE)) == 2


@pytest.mark.parametrize("argument", ["min_prio=foo", "min_prio=99", "min_prio=", "other=1"])
def test_a_wrong_argument_in_plugstack_conf_is_told(kind: str, argument: str) -> None:
    with running() as node:
        node.plugstack(f"optional {twin(node, 'renice', kind)} {argument}\n")
        done = node.run("--renice=-15", "--", "nice")
        assert done.stdout == "-15\n"
        assert repr(argument) in done.stderr
