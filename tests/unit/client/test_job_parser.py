"""The options of `nodectl submit` and `nodectl alloc`: sbatch's, from script, variables and command line."""

from __future__ import annotations

import pytest

from nodectl.client.command import BadOption
from nodectl.client.job_changes import assigned
from nodectl.client.job_options import array, nice
from nodectl.client.job_parser import JobParser, ignored, job_options, outside_of_jobs
from nodectl.client.option_lines import option_lines
from nodectl.client.run_options import Parsed
from nodectl.client.srun.manners import settle


def values(words: list[str], command: str = "submit") -> dict[str, object]:
    return JobParser(command).parse(words).values


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-a", "0-9%2"], {"array": "0-9%2"}),
        (["-dafterok:7", "-H"], {"dependency": "afterok:7", "hold": True}),
        (["--nice"], {"nice": 100}),
        (["--nice=-5"], {"nice": -5}),
        (["--exclusive"], {"exclusive": True}),
        (["--requeue", "--no-requeue"], {"requeue": False}),
        (["--open-mode=a"], {"open_mode": "append"}),
        (["--signal=B:USR1@300"], {"signal": "B:10@300"}),
        (["--kill-on-invalid-dep=yes", "-Q"], {"kill_on_invalid_dep": True, "quiet": True}),
        (["--signal=sigterm"], {"signal": "15@60"}),
        (["--signal=R:10@0"], {"signal": "10@0"}),
        (["-oout", "-e", "err", "-i/dev/null"], {"stdout": "out", "stderr": "err", "stdin": "/dev/null"}),
        (["-n4", "-c2", "-t10", "--mem=1G"], {"ntasks": 4, "cpus_per_task": 2, "time_limit": 600, "mem": 1024}),
        (["-N1", "--gres=gpu:1"], {"nodes": "1", "gres": "gpu:1"}),
        (["-W"], {"wait": True}),
        (["-q", "high", "-s"], {"qos": "high", "oversubscribe": True}),
    ],
)
def test_options_are_sbatchs(words: list[str], found: dict[str, object]) -> None:
    assert values(words) == found


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--label"], "unrecognized option '--label'"),
        (["--cpu-bind=cores"], "unrecognized option '--cpu-bind'"),
        (["--overlap"], "unrecognized option '--overlap'"),
        (["--container=x"], "option '--container' is sbatch's, and not offered here"),
        (["--signal=B:NONE"], "Invalid signal 'B:NONE', it is written"),
        (["--arr=5-1"], "Invalid job array specification '5-1' for --array."),
        (["--exclusive=user"], "Invalid value 'user', only --exclusive alone is known for --exclusive."),
        (["-b", "soon"], "Invalid time specification 'soon' for --begin."),
        (["--re"], "option '--re' is ambiguous"),
    ],
)
def test_other_options_are_refused_by_name(words: list[str], why: str) -> None:
    with pytest.raises(BadOption, match=why.replace("(", r"\(")):
        values(words)


@pytest.mark.parametrize("text", ["", "x", "1-", "5-1", "1:2", "1-9:0", "1%0", "1%", "1,,2", "1-2-3", "9" * 40, "-1"])
def test_an_array_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid job array specification"):
        array(text)


@pytest.mark.parametrize("text", ["0", "0-15", "1,3,5-9:2", "0-999999", "0-15%4"])
def test_an_array_travels_as_typed(text: str) -> None:
    assert array(text) == text


def test_a_nice_value_is_a_number() -> None:
    assert nice("") == 100
    with pytest.raises(ValueError, match="Invalid numeric value"):
        nice("--5")


def test_the_later_word_counts() -> None:
    parser, parsed = JobParser("submit"), Parsed()
    parser.parse_into(parsed, ["-n2", "-J", "script"])
    variables = {"SBATCH_JOB_NAME": "variable", "SBATCH_TIMELIMIT": "5", "SBATCH_EXCLUSIVE": "", "SBATCH_HOLD": "no",
                 "SBATCH_ARRAY_INX": "0-3", "SALLOC_QOS": "salloc's", "SBATCH_WRAP": "rm"}  # fmt: skip
    parser.parse_into(parsed, parser.variables(variables))
    parser.parse_into(parsed, ["--job-name=typed", "job.sh"])
    assert parsed.values == {"ntasks": 2, "name": "typed", "time_limit": 300, "exclusive": True, "array": "0-3"}
    assert parsed.argv == ["job.sh"]
    assert JobParser("alloc").variables(variables) == ["--qos=salloc's"]


def test_options_without_effect_are_taken_and_named() -> None:
    parsed = JobParser("submit").parse(["-p", "debug", "--switches=1", "-Ame", "-n2"])
    assert ignored(parsed) == ["partition", "switches"]
    assert parsed.values == {"account": "me", "ntasks": 2}


def test_what_is_the_jobs_is_taken_out() -> None:
    parsed = JobParser("submit").parse(["--qos=x", "-H", "-n2", "--array=1"])
    assert job_options(parsed) == {"array": "1", "hold": True, "qos": "x"}
    assert parsed.values == {"ntasks": 2}


def test_a_new_job_does_not_take_the_variables_of_a_surrounding_one() -> None:
    inner = {"NODECTL_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURMD_NODENAME": "n", "PATH": "/bin", "NODECTL_SOCKET": "/s"}
    assert outside_of_jobs(inner) == {"PATH": "/bin", "NODECTL_SOCKET": "/s"}
    part = {"NODECTL_GPU_MEM": "20480", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M"}
    assert outside_of_jobs(inner | part) == {"PATH": "/bin", "NODECTL_SOCKET": "/s"}
    part["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = "0=1G"  # the user's own
    assert outside_of_jobs(inner | part) == {
        "PATH": "/bin", "NODECTL_SOCKET": "/s", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G",
    }  # fmt: skip
    mine = {"SLURM_HINT": "nomultithread", "PATH": "/bin"}
    assert outside_of_jobs(mine) == mine


def test_changes_may_be_written_as_scontrols() -> None:
    found = assigned(["TimeLimit=1:00:00", "Nice=5", "Dependency=", "requeue=0", "mem=1G", "StartTime=0"])
    assert found == {"time_limit": 3600, "nice": 5, "dependency": "", "requeue": False, "mem": 1024, "begin": 0}
    for word in ("TimeLimit", "Colour=red", "=5"):
        with pytest.raises(ValueError, match="changes nothing"):
            assigned([word])


def test_what_counts_by_gpu_is_said_by_task() -> None:
    lines = ["--gpus=2", "--cpus-per-gpu=3", "-n2", "--mem-per-gpu=1G"]
    for command in ("submit", "alloc"):
        parsed = JobParser(command).parse(lines)
        settle(parsed)
        assert parsed.values == {"gpus": "2", "ntasks": 2, "cpus_per_task": 3, "mem": 2048}
    assert JobParser("submit").variables({"SBATCH_CPUS_PER_GPU": "3"}) == ["--cpus-per-gpu=3"]


def test_help_writes_an_argument_that_has_no_name_as_none() -> None:
    parser = JobParser("submit")
    lines = option_lines([option for group in (parser.own, *parser.groups().values()) for option in group])
    assert any(line.split()[0] == "--exclusive" for line in lines)
    assert not [line for line in lines if "[=]" in line]
