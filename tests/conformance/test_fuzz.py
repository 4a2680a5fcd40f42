"""Any plugstack.conf and any value of an option, on a real node: it works, or it is refused in one line that says why.

The examples are the same in every run.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conformance.scenario import LANGUAGES
from conformance.theatre import Theatre, Theatres
from rootful.node import NOBODY

FEW = settings(
    max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
PRESET = "SLURM_SPANK__SLURM_SPANK_OPTION_trace_trace_opt"
WAYS = ("--trace-opt=", "--trace-opt", "--trace-maybe=", PRESET)
LONG = "0123456789abcdef" * 1000

# Bytes that are no text come as surrogates; only a NUL cannot be in an argument.
VALUE = st.text(
    st.one_of(st.sampled_from("a=,-%\"'\\\n\r\t\x1b\x7f\x85 é\u2028\U0001f41f"), st.characters(min_codepoint=1)),
    max_size=40,
).map(lambda text: os.fsdecode(text.encode("utf-8", "replace"))) | st.binary(max_size=20).map(
    lambda data: os.fsdecode(data.replace(b"\0", b"\xff"))
)
# No absolute patterns: these would walk the machine that runs the tests.
WORD = st.one_of(
    st.sampled_from(["required", "optional", "include", "plugstack.conf", "plugstack.d", "*", "no.so", "/no.so", "#"]),
    st.sampled_from(["fail=init:-1:remote", "fail=user_init:1", "fail=init:x", "optret=1", "calls=1"]),
    st.text("ab*?[]!-.#\\'\"=:\r\v\x85\0\udcff\xe9~", max_size=12),
)
PLUGIN = st.sampled_from(["@/plugin/trace.so", "trace", "tracetab", "../plugin/traceb.so", "no.so"])
STACKED = st.tuples(st.sampled_from(["required", "optional"]), PLUGIN, st.just("out=OUT"), st.lists(WORD, max_size=3))
LINE = st.one_of(st.lists(WORD, max_size=5), STACKED.map(lambda parts: [*parts[:3], *parts[3]]))


def run(theatre: Theatre, stack: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A run with this plugstack.conf, which ended in good order: no failure but in words, nothing left undone."""
    text = stack.replace("@", str(theatre.at)).replace("OUT", str(theatre.out)).replace(".so", theatre.suffix)
    (theatre.at / "etc/plugstack.conf").write_bytes(os.fsencode(text))
    os.truncate(theatre.out, 0)
    done = theatre.node.run(*words, "echo", "it ran", user=NOBODY, env=env)
    assert done.returncode in (0, 1, 255), done.stderr
    assert done.returncode == 0 or "nodectl: error: " in done.stderr, done.stderr
    assert done.stdout == ("it ran\n" if done.returncode == 0 else "")
    assert "Traceback" not in done.stderr + theatre.node.logged()
    return done


def callbacks(theatre: Theatre) -> list[tuple[str, str, int]]:
    """What the callback of an option was called with: context, argument, remote."""
    return [
        (record["ctx"], record["optarg"], record["remote"])
        for record in theatre.records()
        if record["hook"] == "option_cb"
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_any_plugstack_works_or_is_refused(theatres: Theatres, language: str) -> None:
    theatre = theatres.theatres[language]

    @FEW
    @given(st.lists(LINE, max_size=5))
    @example([["required", "\v"]])
    def check(lines: list[list[str]]) -> None:
        done = run(theatre, "\n".join(" ".join(words) for words in lines))
        assert all(line.startswith("nodectl: ") and line.isprintable() for line in done.stderr.splitlines())

    check()
    assert run(theatre, "").returncode == 0


def given_by(way: str, value: str) -> tuple[list[str], Mapping[str, str]]:
    """The words and the variables that give the option this value."""
    if way == PRESET:
        return [], {PRESET: value}
    return ([way + value] if way.endswith("=") else [way, value]), {}


@pytest.mark.parametrize("language", LANGUAGES)
def test_any_value_of_an_option_arrives_as_it_was_given(theatres: Theatres, language: str) -> None:
    theatre = theatres.theatres[language]

    @FEW
    @given(VALUE, st.sampled_from(WAYS))
    @example(LONG, "--trace-opt=")
    @example("", PRESET)
    def check(value: str, way: str) -> None:
        words, env = given_by(way, value)
        done = run(theatre, "required @/plugin/trace.so out=OUT\n", *words, **env)
        assert (done.returncode, done.stderr) == (0, "")
        assert callbacks(theatre) == [("LOCAL", value, 0), ("REMOTE", value, 1)]

    check()


@pytest.mark.parametrize("language", LANGUAGES)
def test_any_value_can_be_refused_by_its_plugin(theatres: Theatres, language: str) -> None:
    theatre = theatres.theatres[language]

    @settings(FEW, max_examples=10)
    @given(VALUE, st.sampled_from(WAYS[:3]))
    def check(value: str, way: str) -> None:
        words, env = given_by(way, value)
        done = run(theatre, "optional @/plugin/trace.so out=OUT optret=7\n", *words, **env)
        assert done.returncode == 255
        assert callbacks(theatre) == [("LOCAL", value, 0)]

    check()
