"""The command line of `nodectl run`, with srun's manners, words and exit statuses."""

from __future__ import annotations

import pytest

from nodectl.client import launch_request
from nodectl.client.command import BadOption
from nodectl.client.run_options import ARGUMENT, MAYBE_ARGUMENT, OPTIONS, PluginOption, waiting_options
from nodectl.client.srun.help import text as help_text
from nodectl.client.srun.options import parser
from nodectl.launch.task.keys import RLIMITS
from nodectl.model.fields import names
from nodectl.model.number import seconds
from nodectl.model.request_fields import JobOptions, LaunchRequest
from nodectl.spank import SpankOption

GETOPT_STATUS = 255  # srun's, where getopt_long(3) refuses


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["-n4"], {"ntasks": 4}),
        (["-n", "4"], {"ntasks": 4}),
        (["--ntasks=4"], {"ntasks": 4}),
        (["--ntasks", "4"], {"ntasks": 4}),
        (["--chd=/x"], {"cwd": "/x"}),
        (["--distr=block"], {"distribution": "block"}),
        (["-n4", "--ntasks=2"], {"ntasks": 2}),
        (["-c2"], {"cpus_per_task": 2}),
        (["--cpus-per-t=2"], {"cpus_per_task": 2}),
        (["-D", "/x"], {"cwd": "/x"}),
        (["--chdir="], {"cwd": ""}),
        (["-J", "-x"], {"name": "-x"}),  # an argument is an argument, whatever it looks like
        (["-i", "none"], {"stdin": "none"}),
        (["-oout"], {"stdout": "out"}),
        (["-e", "err"], {"stderr": "err"}),
        (["-l"], {"label": True}),
        (["-lu"], {"label": True, "unbuffered": True}),
        (["-ln", "3"], {"label": True, "ntasks": 3}),
        (["-ln3"], {"label": True, "ntasks": 3}),
        (["-K"], {"kill_on_bad_exit": True}),
        (["-K0"], {"kill_on_bad_exit": False}),
        (["-K1"], {"kill_on_bad_exit": True}),
        (["--kill-on-bad-exit"], {"kill_on_bad_exit": True}),
        (["--kill-on-bad-exit=0"], {"kill_on_bad_exit": False}),
        (["--kill"], {"kill_on_bad_exit": True}),
        (["--cpu-bind=verbose,cores"], {"cpu_bind": "verbose,cores"}),
        (["--cpu-b", "none"], {"cpu_bind": "none"}),
        (["--export=NONE"], {"export": "NONE"}),
        (["-m", "block:cyclic", "--exact"], {"distribution": "block:cyclic", "exact": "1"}),
        (["-N2", "-B2:4", "-O"], {"nodes": "2", "extra_node_info": "2:4", "overcommit": "1"}),
        (["--mem-b=local", "--hint", "nomultithread"], {"mem_bind": "local", "hint": "nomultithread"}),
        (["-lO", "--ntasks-per-core=1"], {"label": True, "overcommit": "1", "ntasks_per_core": "1"}),
        (["--task-p=/p"], {"task_prolog": "/p"}),
        (["--task-epilog=/e"], {"task_epilog": "/e"}),
        (["--uid=alice", "--gid", "peers"], {"uid": "alice", "gid": "peers"}),
        (["--trace=f"], {"trace": "f"}),
        (["-h"], {"help": True}),
        (["--help"], {"help": True}),
        (["-t1"], {"time_limit": 60}),
        ([], {}),
    ],
)
def test_an_option_is_read_in_each_of_its_forms(words: list[str], values: dict[str, object]) -> None:
    parsed = parser().parse([*words, "program", "-n9"] if "-h" not in words else words)
    assert parsed.values == values
    assert parsed.argv in ([], ["program", "-n9"])


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["-l", "prog", "-l", "--", "x"], ["prog", "-l", "--", "x"]),
        (["-l", "--", "-prog"], ["-prog"]),
        (["--", "--"], ["--"]),
        (["-"], ["-"]),
        (["-K", "1"], ["1"]),  # an argument that may be absent is never the next word
        ([], []),
    ],
)
def test_the_program_begins_at_the_first_word_that_is_no_option(words: list[str], argv: list[str]) -> None:
    assert parser().parse(words).argv == argv


def test_verbosity_counts() -> None:
    assert [parser().parse(words).verbose for words in ([], ["-v"], ["-vv"], ["-v", "--verbose"])] == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["-n0"], 1, 'Invalid numeric value "0" for --ntasks.'),
        (["-n", "-1"], 1, 'Invalid numeric value "-1" for --ntasks.'),
        (["-nx"], 1, 'Invalid numeric value "x" for --ntasks.'),
        (["-n", ""], 1, 'Invalid numeric value "" for --ntasks.'),
        (["-n1.5"], 1, 'Invalid numeric value "1.5" for --ntasks.'),
        (["-n", "٣"], 1, 'Invalid numeric value "٣" for --ntasks.'),
        (["-n", "9" * 5000], 1, f'Invalid numeric value "{"9" * 20}..." for --ntasks.'),
        (["-c0"], 1, 'Invalid numeric value "0" for --cpus-per-task.'),
        (["-t", "soon"], 1, "Invalid time specification 'soon' for --time."),
        (["-K2"], 1, 'Invalid value "2", only 0 and 1 are allowed for --kill-on-bad-exit.'),
        (["--bad"], GETOPT_STATUS, "unrecognized option '--bad'"),
        (["--bad=3"], GETOPT_STATUS, "unrecognized option '--bad'"),
        (["-Y"], GETOPT_STATUS, "invalid option -- 'Y'"),
        (["-lY"], GETOPT_STATUS, "invalid option -- 'Y'"),
        (["-n"], GETOPT_STATUS, "option requires an argument -- 'n'"),
        (["--ntasks"], GETOPT_STATUS, "option '--ntasks' requires an argument"),
        (["--label=yes"], GETOPT_STATUS, "option '--label' doesn't allow an argument"),
        (["--exp-"], GETOPT_STATUS, "unrecognized option '--exp-'"),
        (["--exc"], GETOPT_STATUS, "option '--exc' is ambiguous; possibilities: --exclude --exclusive"),
        (["--task-"], GETOPT_STATUS, "option '--task-' is ambiguous; possibilities: --task-epilog --task-prolog"),
        (
            ["--contain=/x"],
            GETOPT_STATUS,
            "option '--contain' is ambiguous; possibilities: --container --container-id --container-ns",
        ),
        (["--taks-prolog=x"], GETOPT_STATUS, "unrecognized option '--taks-prolog'; the nearest is --task-prolog"),
        (["--exclusive=alone"], 1, "Invalid value 'alone', user, mcs and topo are allowed for --exclusive."),
        (
            ["--nt=4"],
            GETOPT_STATUS,
            "option '--nt' is ambiguous; possibilities: --ntasks --ntasks-per-core "
            "--ntasks-per-gpu --ntasks-per-node --ntasks-per-socket --ntasks-per-tres",
        ),
    ],
)
def test_a_wrong_option_is_refused_as_srun_does(words: list[str], status: int, reason: str) -> None:
    with pytest.raises(BadOption) as caught:
        parser().parse([*words])
    assert (str(caught.value), caught.value.status) == (reason, status)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 60),
        ("90", 5400),
        ("0:05", 5),
        ("1:30", 90),
        ("1:00:00", 3600),
        ("0:0:7", 7),
        ("1-0", 86_400),
        ("1-2", 93_600),
        ("1-2:3", 93_780),
        ("1-2:3:4", 93_784),
        ("0", 0),
        ("90s", 90),
        ("1h30m", 5400),
        ("1H", 3600),
        ("1d12h", 129_600),
        ("2w", 1_209_600),
        ("0m", 0),
        ("infinite", 0),
        ("UNLIMITED", 0),
        ("-1", 0),
        ("0:00", 0),
    ],
)
def test_time_limits_in_every_notation(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "1:",
        ":1",
        "1-",
        "-",
        "1-2-3",
        "1:2:3:4",
        "1-1:2:3:4",
        "1.5",
        "1 ",
        "x",
        "--1",
        "٣",
        "h",
        "1h1h",
        "30m1h",
        "1h30",
        "1.5h",
        "-1h",
    ],
)
def test_what_is_no_time_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid time specification"):
        seconds(text)


def plugin_option(name: str, taken: list[str | None], has_arg: int = ARGUMENT) -> PluginOption:
    return PluginOption(SpankOption(name, "x", "help", has_arg, 0, None), taken.append, "")


def test_options_of_plugins_are_taken_in_order_and_found_by_abbreviation() -> None:
    taken: list[str | None] = []
    first, second = plugin_option("renice", taken, MAYBE_ARGUMENT), plugin_option("other", taken)
    words = ["--other=a", "--reni=7", "--oth", "b", "--other=", "--renice=", "--renice", "prog"]
    parsed = parser([first, second]).parse(words)
    assert taken == ["a", "7", "b", "", "", None]  # an empty argument is one
    assert (parsed.values, parsed.argv) == ({}, ["prog"])


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_help_names_every_option_and_keeps_to_the_width(columns: int) -> None:
    text = help_text([plugin_option("renice", [])], columns)
    for option in OPTIONS:
        assert f"--{option.long}" in text
    assert text.index("Options provided by plugins:") < text.index("--renice")
    # A word that is longer than the room for it stays whole.
    assert all(len(line) <= max(columns, 52) or " " not in line[32:] for line in text.splitlines())


def test_long_names_and_letters_are_unique() -> None:
    assert len({option.long for option in OPTIONS}) == len(OPTIONS)
    letters = [option.short for option in OPTIONS if option.short]
    assert len(set(letters)) == len(letters)


def test_every_option_of_a_step_sets_a_field_of_its_request_or_is_the_commands_own() -> None:
    own = {"export", "help", "propagate", "trace", "verbose"}
    assert {option.dest for option in OPTIONS} - own <= names(LaunchRequest).keys()


def test_every_option_of_a_job_sets_a_field_of_the_jobs_description_or_is_the_commands_own() -> None:
    own = {"immediate"}
    assert {option.dest for option in waiting_options()} - own <= names(JobOptions).keys()


def test_limits_that_the_command_sends_are_those_that_the_service_knows() -> None:
    assert set(launch_request.RLIMITS) == RLIMITS
