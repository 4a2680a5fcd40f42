"""nodectl submit: batch scripts with sbatch's options, from the file to the output and the exit status."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from rootful.jobs.machine import (
    CPUS,
    FOREVER,
    ended,
    queue,
    runs,
    said,
    script,
    state,
    submit,
    typed,
    wrap,
)
from rootful.node import NOBODY, OTHER, Node, wait_until


@pytest.fixture
def node(queued: Node) -> Node:
    """Whose jobs take turns."""
    return queued


def test_a_script_runs_with_its_arguments_where_it_was_submitted(node: Node) -> None:
    path = script(node, 'pwd; echo "$SLURM_JOB_NAME:$1:$2"; echo problem >&2')
    done = node.nodectl("submit", path, "a", "b c", user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")
    word, _, number = done.stdout.rpartition(" ")
    assert word == "Submitted batch job"
    assert said(node, int(number)) == f"{node.scratch}\njob.sh:a:b c\nproblem\n"


def test_its_file_may_change_and_go_once_it_is_submitted(node: Node) -> None:
    path = script(node, "echo first")
    job = submit(node, "--hold", path)
    script(node, "echo second")
    (node.scratch / "job.sh").unlink()
    assert node.nodectl("release", str(job), user=NOBODY).returncode == 0
    assert said(node, job) == "first\n"


def test_options_come_from_the_script_the_variables_and_the_command_line(node: Node) -> None:
    path = script(node, '#SBATCH -J script --comment="two words"\n#NODECTL -o %x-%j.txt\necho $SLURM_JOB_NAME')
    assert said(node, submit(node, path), "script-{job}.txt") == "script\n"
    variables = {"SBATCH_JOB_NAME": "variable"}
    assert said(node, submit(node, path, env=variables), "variable-{job}.txt") == "variable\n"
    assert said(node, submit(node, "-J", "typed", path, env=variables), "typed-{job}.txt") == "typed\n"


def test_a_script_comes_on_standard_input_or_as_a_line(node: Node) -> None:
    assert said(node, submit(node, stdin="#!/bin/sh\necho from stdin\n")) == "from stdin\n"
    assert said(node, wrap(node, "echo $SLURM_JOB_NAME; echo 'it''s me'")) == "wrap\nits me\n"


@pytest.mark.parametrize(("command", "status"), [("true", 0), ("exit 3", 3)])
def test_who_waits_ends_with_the_jobs_exit_status(node: Node, command: str, status: int) -> None:
    done = node.nodectl("submit", "--wait", f"--wrap={command}", user=NOBODY)
    assert done.returncode == status, done.stderr
    assert not queue(node)


def test_a_script_has_the_soft_limits_that_it_was_submitted_with_as_far_as_is_said(node: Node) -> None:
    line = typed(node, "submit", "--wait", "-o", "%x", "--wrap", "ulimit -Sn", "-J")
    shell = f"ulimit -Sn 77; {line} kept; {line} left --propagate=NONE"
    subprocess.run(["bash", "-c", shell], cwd=node.scratch, user=NOBODY.pw_uid, extra_groups=[], check=True)
    assert (node.scratch / "kept").read_text() == "77\n"
    assert (node.scratch / "left").read_text() != "77\n"


def test_streams_go_to_files_by_their_patterns(node: Node) -> None:
    (node.scratch / "in").write_text("given\n", encoding="utf-8")
    job = wrap(node, "cat; echo bad >&2", "-i", "in", "-o", "out-%u-%j", "-e", "err-%x", "-J", "streams")
    assert said(node, job, "out-nobody-{job}") == "given\n"
    assert (node.scratch / "err-streams").read_text(encoding="utf-8") == "bad\n"
    said(node, wrap(node, "echo more", "-o", "err-streams", "--open-mode=append"), "err-streams")
    assert (node.scratch / "err-streams").read_text(encoding="utf-8") == "bad\nmore\n"


def test_each_task_of_an_array_has_a_job_and_a_file(node: Node) -> None:
    job = wrap(node, "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID", "-a", "1-5:2%1")
    wait_until(lambda: not queue(node), "the array is over")
    for task in (1, 3, 5):
        text = (node.scratch / f"slurm-{job}_{task}.out").read_text(encoding="utf-8")
        assert text == f"{job} {task}\n"


def test_a_job_waits_for_the_end_of_another(node: Node) -> None:
    first = wrap(node, "exec sleep 1000")
    second = wrap(node, "echo after", f"--dependency=afterany:{first}")
    third = wrap(node, "echo never", f"--dependency=afterok:{first}")
    runs(node, first)
    assert state(node, second) == "PENDING"
    (found,) = queue(node, "-j", str(second))
    assert found["reason"] == "Dependency"
    node.nodectl("cancel", str(first), user=NOBODY)
    assert said(node, second) == "after\n"
    assert not (node.scratch / f"slurm-{third}.out").exists()


def test_submit_warns_of_a_dependency_that_will_not_be_met(node: Node) -> None:
    first = wrap(node, "exit 1")
    ended(node, first)
    done = node.nodectl("submit", "-d", f"afterok:{first}", "--wrap=true", user=NOBODY)
    assert done.returncode == 0
    number = int(done.stdout.split()[-1])
    assert done.stderr == (
        f"nodectl: warning: job {number} will never start: what it waits for will not happen: afterok:{first}\n"
    )
    assert node.nodectl("cancel", str(number), user=NOBODY).returncode == 0


def test_jobs_wait_for_cpus_and_run_in_turn(node: Node) -> None:
    first = wrap(node, FOREVER, f"-n{CPUS}")
    runs(node, first)
    second = wrap(node, "echo turn", "-n1")
    assert state(node, second) == "PENDING"
    node.nodectl("cancel", str(first), user=NOBODY)
    assert said(node, second) == "turn\n"


def test_steps_of_a_script_are_its_jobs(node: Node) -> None:
    step = typed(node, "run", "sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID")
    job = wrap(node, f"{step}; {step}")
    assert said(node, job) == f"{job}.0\n{job}.1\n"


def test_a_script_that_submits_gives_nothing_of_its_own_to_the_new_job(node: Node) -> None:
    inner = typed(node, "submit", "--parsable", "--wrap", "echo $SLURM_NTASKS $SLURM_JOB_ID")
    job = wrap(node, inner, f"-n{CPUS}")
    number = int(said(node, job))
    assert said(node, number).split()[-1] == str(number) != str(job)


def test_a_script_may_have_its_environment_from_a_file_and_is_told_what_it_waited_for(node: Node) -> None:
    (node.scratch / "variables").write_bytes(b"A=from a file\0PATH=/usr/bin:/bin\0")
    words = ("--export-file", str(node.scratch / "variables"), "--dependency=singleton", "-o", "said")
    done = node.nodectl("submit", *words, "--wait", "--wrap", 'echo "$A $SLURM_JOB_DEPENDENCY"', user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert (node.scratch / "said").read_text(encoding="utf-8") == "from a file singleton\n"


def test_a_held_job_starts_when_it_is_released(node: Node) -> None:
    job = wrap(node, "echo let", "-H")
    (found,) = queue(node)
    assert (found["state"], found["reason"]) == ("PENDING", "JobHeldUser")
    assert node.nodectl("release", str(job), user=OTHER).returncode == 1
    assert node.nodectl("release", str(job), user=NOBODY).returncode == 0
    assert said(node, job) == "let\n"


def test_when_a_job_would_start_is_told_and_nothing_is_queued(node: Node) -> None:
    done = node.nodectl("submit", "--test-only", "--wrap=true", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "")
    assert "the job would start at 2" in done.stderr
    assert "1 CPU on" in done.stderr
    assert not queue(node)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/sh\n#SBATCH -n2\n#SBATCH --nothing\n", "line 3: #SBATCH: unrecognized option '--nothing'"),
        ("#!/bin/sh\n#NODECTL -n zero\n", 'line 2: #NODECTL: Invalid numeric value "zero" for --ntasks.'),
        ("#!/bin/sh\n#SBATCH -n2 true\n", "line 2: #SBATCH: 'true' is no option"),
        ("#!/bin/sh\n#SBATCH --container=x\n", "line 2: #SBATCH: option '--container' is sbatch's, and not offered"),
        ("echo\n", "its first line is not #!"),
        ("\x7fELF\0\0", "a binary file"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused_in_one_line(node: Node, text: str, why: str) -> None:
    path = node.scratch / "bad"
    path.write_text(text, encoding="utf-8")
    done = node.nodectl("submit", str(path), user=NOBODY)
    assert done.returncode != 0
    assert why in done.stderr.splitlines()[0]
    assert not queue(node)


def test_options_behind_the_first_command_are_not_passed_over_in_silence(node: Node) -> None:
    path = node.scratch / "late"
    text = "#!/bin/sh\n#SBATCH -n1\n\ntrue\n# SBATCH is said\n#SBATCHES -n\n#SBATCH --nice=7\n"
    path.write_text(text, encoding="utf-8")
    done = node.nodectl("submit", str(path), user=NOBODY)
    place = f"{path}: line 7: #SBATCH stands behind the first command"
    assert (done.returncode, done.stderr) == (0, f"nodectl: warning: {place}, where no options are read\n")
    assert node.nodectl("submit", "-Q", str(path), user=NOBODY).stderr == ""
    path.write_text("#!/bin/sh\n#SBATCH -n1\ntrue\n", encoding="utf-8")
    assert node.nodectl("submit", str(path), user=NOBODY).stderr == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--mem=9999999G"], "more than the"),
        (["--dependency=never:1"], "ependency"),
        (["-a", "0-9999999999"], "rray"),
        (["--qos=nothing"], "nothing"),
        (["--reservation=nothing"], "nothing"),
    ],
)
def test_what_can_never_run_is_refused_at_once(node: Node, words: list[str], why: str) -> None:
    done = node.nodectl("submit", *words, "--wrap=true", user=NOBODY)
    assert done.returncode != 0
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not queue(node)


def test_an_accepted_job_outlives_the_service(node: Node) -> None:
    job = wrap(node, f"echo kept; echo $KEPT {shlex.quote('$x')}", "-H", env={"KEPT": "variable"})
    node.stop(9)
    node.start()
    assert state(node, job) == "PENDING"
    node.nodectl("release", str(job), user=NOBODY)
    assert said(node, job) == "kept\nvariable $x\n"


def test_ended_jobs_are_no_more_in_the_queue(node: Node) -> None:
    job = wrap(node, "true")
    ended(node, job)
    done = node.nodectl("queue", "-j", str(job))
    assert done.returncode == 1
    assert f"not in the queue: {job}" in done.stderr


def test_a_long_script_is_taken_whole_and_one_that_is_too_long_is_not(node: Node) -> None:
    padding = "# padding" * 10
    path = script(node, f"echo begin\n{(padding + chr(10)) * 40_000}echo end")
    assert said(node, submit(node, path)) == "begin\nend\n"
    script(node, f"{(padding + chr(10)) * 60_000}")
    done = node.nodectl("submit", path, user=NOBODY)
    assert done.returncode == 1
    assert "max_script_size" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_who_waits_for_an_array_gets_its_highest_exit_status(node: Node) -> None:
    for exits in ("$SLURM_ARRAY_TASK_ID", "$((4 - SLURM_ARRAY_TASK_ID))"):  # the last task has the array's number
        done = node.nodectl("submit", "--wait", "-a", "1-3", f"--wrap=exit {exits}", user=NOBODY)
        assert done.returncode == 3, done.stderr


@pytest.mark.skipif(CPUS < 2, reason="its two tasks run side by side")
def test_who_waits_for_an_array_waits_for_all_of_it(node: Node) -> None:
    # The last task, which has the array's number, can end before the first.
    wait = "while ! [ -e last ]; do sleep 0.05; done; sleep 0.3; exit 5"
    command = f"if [ $SLURM_ARRAY_TASK_ID = 2 ]; then touch last; else {wait}; fi"
    done = node.nodectl("submit", "--wait", "-a", "1-2", f"--wrap={command}", user=NOBODY)
    assert done.returncode == 5, done.stderr
    assert not queue(node)


def test_a_job_that_waits_is_shown(node: Node) -> None:
    job = wrap(node, "true", "-H", "-J", "shown")
    shown = node.nodectl("show", str(job), user=NOBODY)
    assert shown.returncode == 0, shown.stderr
    assert "JobHeldUser" in shown.stdout
    assert "shown" in shown.stdout
