"""The verbs of every day: log, wait, resubmit, and jobs called last or by a range, with a real service."""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rootful.at_terminal import at_terminal
from rootful.jobs.machine import CPUS, FOREVER, TURNS, ended, queue, runs, said, script, state, submit, wrap
from rootful.node import NOBODY, OTHER, PATIENCE, Node, running, wait_until


@pytest.fixture
def node(queued: Node) -> Node:
    """Whose jobs take turns."""
    return queued


def ok(node: Node, *words: str, user: pwd.struct_passwd = NOBODY) -> str:
    """What a command prints that does what it should, silently."""
    done = node.nodectl(*words, user=user)
    assert (done.returncode, done.stderr) == (0, ""), (words, done.stderr)
    return done.stdout


_BEGUN: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """A command that a failed test has begun ends with the test."""
    yield
    while _BEGUN:
        client = _BEGUN.pop()
        client.kill()
        client.communicate()


def begun(node: Node, *words: str) -> subprocess.Popen[str]:
    """A command of nobody's, which goes on."""
    client = subprocess.Popen(
        node.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=node.scratch, env=node.environment(), user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[],
    )  # fmt: skip
    _BEGUN.append(client)
    return client


def gated(node: Node, name: str = "go") -> str:
    """A line of shell that waits until `open_gate` is called."""
    path = node.scratch / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    path.chmod(0o666)
    return f"read line <{path}"


def state_of_task(node: Node, array: int, index: int) -> str:
    return next((str(one["state"]) for one in queue(node) if one["id"] == f"{array}_{index}"), "")


def open_gate(node: Node, name: str = "go") -> None:
    (node.scratch / name).write_text("go\n")


# log


def test_log_prints_what_a_job_has_written_while_it_runs_and_afterwards(node: Node) -> None:
    job = wrap(node, f"echo one; echo two; {gated(node)}; echo three")
    runs(node, job)
    wait_until((node.scratch / f"slurm-{job}.out").exists, "it has written")
    wait_until(lambda: "two" in node.nodectl("log", str(job), user=NOBODY).stdout, "what it wrote is told")
    assert ok(node, "log", str(job)) == "one\ntwo\n"
    assert ok(node, "log", "-n1", "last") == "two\n"
    open_gate(node)
    ended(node, job)
    assert ok(node, "log", str(job)) == "one\ntwo\nthree\n"
    assert ok(node, "log", str(job), "-n", "2") == "two\nthree\n"


def test_log_follows_a_job_from_its_wait_to_its_end(node: Node) -> None:
    blocker = wrap(node, FOREVER, f"-n{CPUS}")
    runs(node, blocker)
    job = wrap(node, f"echo one; {gated(node)}; echo two", "-o", "new-%j")
    follower = begun(node, "log", "-f", str(job))
    assert follower.stdout
    assert follower.stderr
    assert follower.stderr.readline().startswith(f"nodectl: job {job} waits: ")
    ok(node, "cancel", str(blocker))
    assert follower.stdout.readline() == "one\n"
    open_gate(node)
    out, err = follower.communicate(timeout=PATIENCE)
    assert (follower.returncode, out, err) == (0, "two\n", "")


def test_who_follows_is_told_that_the_file_was_truncated(node: Node) -> None:
    job = wrap(
        node, f"echo before, and long; {gated(node)}; : >slurm-$SLURM_JOB_ID.out; echo new; {gated(node, 'end')}"
    )
    follower = begun(node, "log", "-f", str(job))
    assert follower.stdout
    assert follower.stderr
    assert follower.stdout.readline() == "before, and long\n"
    open_gate(node)
    assert "was truncated" in follower.stderr.readline()
    open_gate(node, "end")
    assert "new" in follower.communicate(timeout=PATIENCE)[0]


def test_log_finds_the_errors_and_the_tasks_of_arrays(node: Node) -> None:
    job = wrap(node, "echo out; echo bad >&2", "-e", "%x.err", "-J", "both")
    array = wrap(node, "echo task $SLURM_ARRAY_TASK_ID", "-a1-2")
    ok(node, "wait", str(job), str(array))
    assert ok(node, "log", "-e", str(job)) == "bad\n"
    for name in (f"{array}_2", f"{array}_2.batch"):
        assert f"array task:   {array}_2\n" in ok(node, "show", name)
    assert "array task" not in ok(node, "show", f"{job}.batch")
    assert ok(node, "log", str(array), "--task", "2") == ok(node, "log", f"{array}_2") == "task 2\n"
    done = node.nodectl("log", "last", user=NOBODY)
    assert (done.returncode, f"job {array} is an array: name a task" in done.stderr) == (2, True)


def test_who_follows_a_task_of_an_array_that_waits_sees_what_it_writes(node: Node) -> None:
    """Until the task begins nothing knows the number of its job, which stands in the name of its file."""
    array = wrap(node, "echo task $SLURM_ARRAY_TASK_ID", "--hold", "-a1-3", "-o", "of-%j-%2a")
    followers = {task: begun(node, "log", "-f", f"{array}_{task}") for task in (1, 3)}
    for task, follower in followers.items():
        assert follower.stderr
        assert f"job {array}_{task} waits" in follower.stderr.readline()
    waits = node.nodectl("log", f"{array}_2", user=NOBODY)
    assert f"it will write to {node.scratch}/of-{array}-02 -> " in waits.stderr
    whole = node.nodectl("log", str(array), user=NOBODY)
    assert whole.stderr.endswith("or with --task; tasks 1-3 wait\n")
    ok(node, "release", str(array))
    for task, follower in followers.items():
        out, err = follower.communicate(timeout=PATIENCE)
        assert (follower.returncode, out, err) == (0, f"task {task}\n", "")


def test_a_step_that_has_ended_is_called_by_the_name_of_its_task(node: Node) -> None:
    array = wrap(node, "exit 3", "-a1-2")
    assert node.nodectl("wait", str(array), user=NOBODY).returncode == 3
    for task in (1, 2):
        refused = node.nodectl("attach", f"{array}_{task}", user=NOBODY)
        assert refused.returncode == 1
        assert refused.stderr == f"nodectl: error: step {array}_{task}.batch has ended: FAILED\n"


def test_a_task_that_is_not_there_or_named_twice_is_refused_with_what_to_give(node: Node) -> None:
    job = wrap(node, "true")
    array = wrap(node, "true", "-a1-2")
    ok(node, "wait", str(job), str(array))
    for words, advice in (
        (("log", f"{array}_1", "--task=2"), f"give --task=2 with the array alone, {array}"),
        (("log", str(job), "--task=2"), f"job {job} is none: nodectl log {job}"),
        (("resubmit", f"{array}_7", "--hold"), f"job {array} had the tasks 1-2, and no 7"),
        (("resubmit", f"{job}_1", "--hold"), f"job {job} is no array; the whole job: nodectl resubmit {job}"),
        (("resubmit", str(job), str(array)), "one job at a time"),
    ):
        refused = node.nodectl(*words, user=NOBODY)
        assert (refused.returncode, advice in refused.stderr) == (2, True), refused.stderr
    held = ok(node, "resubmit", f"{array}_2", "--hold", "--parsable").strip()
    ok(node, "update", held, "--array-limit=1")
    single = ok(node, "resubmit", str(job), "--hold", "--parsable").strip()
    refused = node.nodectl("update", single, "--array-limit=1", user=NOBODY)
    assert (refused.returncode, f"job {single} is no array" in refused.stderr) == (1, True), refused.stderr
    ok(node, "cancel", held, single)


def test_idle_jobs_are_asked_for_with_what_they_are_listed_by(node: Node) -> None:
    for words, advice in (
        ((), "this machine does not watch for jobs that do nothing"),
        (("--csv",), "not with --csv"),
        (("-S", "today"), "not with --starttime"),
        (("-u", "no-such-user"), "no user 'no-such-user' on this machine"),
    ):
        refused = node.nodectl("report", "--idle", *words, user=NOBODY)
        assert (refused.returncode > 0, advice in refused.stderr) == (True, True), refused.stderr


def test_log_opens_the_file_with_the_rights_of_its_caller(node: Node) -> None:
    job = wrap(node, "umask 077; echo secret >file; echo out", "-o", "own-%j")
    ok(node, "wait", str(job))
    (node.scratch / f"own-{job}").chmod(0o600)
    refused = node.nodectl("log", str(job), user=OTHER)
    assert (refused.returncode, "secret" in refused.stdout) == (1, False)
    assert "only they, admins and root are told" in refused.stderr
    assert node.nodectl("log", str(job)).stdout == "out\n"  # root's


def test_log_shows_no_control_characters_of_another_user_at_a_terminal(node: Node) -> None:
    job = wrap(node, r"printf '\033]0;title\007\n'", "-o", "escapes-%j")
    ok(node, "wait", str(job))
    assert node.nodectl("log", str(job)).stdout == "\x1b]0;title\x07\n"  # no terminal
    for user, shown in ((None, r"\\x1b\]0;title\\x07\r\n"), (NOBODY, "\x1b\\]0;title\x07\r\n")):
        command = node.command("log", str(job))
        with at_terminal(command, user=user, cwd=str(node.scratch), env=node.environment()) as terminal:
            terminal.wait_for(shown)


def test_log_says_where_the_output_of_a_run_went(node: Node) -> None:
    assert node.nodectl("run", "-o", "kept-%j", "echo", "kept", user=NOBODY).returncode == 0
    assert ok(node, "log", "last") == "kept\n"
    assert node.nodectl("run", "echo", "shown", user=NOBODY).stdout == "shown\n"
    done = node.nodectl("log", "last", user=NOBODY)
    assert (done.returncode, "`nodectl run --output=FILE`" in done.stderr) == (1, True)


def test_log_of_a_job_that_has_written_nothing_says_why(node: Node) -> None:
    job = wrap(node, "echo", "--hold")
    done = node.nodectl("log", str(job), user=NOBODY)
    assert (done.returncode, f"job {job} waits and has written nothing" in done.stderr) == (1, True)


def test_log_prints_what_a_further_step_has_written_while_it_runs_and_afterwards(node: Node) -> None:
    job = wrap(node, FOREVER)
    runs(node, job)
    words = ("run", "--jobid=last", "--overlap", "-o", "%x-%s.out", "-e", "%s.err", "-J", "second")
    writes = begun(node, *words, "sh", "-c", f"echo one; echo bad >&2; {gated(node)}; echo two")
    wait_until((node.scratch / "second-0.out").exists, "the step has begun")
    follower = begun(node, "log", "-f", "last.0")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "one\n"
    assert f"`nodectl log -f {job}.0` follows it" in node.nodectl("attach", "last.0", user=NOBODY).stderr
    open_gate(node)
    assert writes.wait(PATIENCE) == 0
    assert follower.communicate(timeout=PATIENCE) == ("two\n", "")
    assert (ok(node, "log", f"{job}.0"), ok(node, "log", "-e", "last.0")) == ("one\ntwo\n", "bad\n")
    assert f"{node.scratch}/second-0.out" in ok(node, "show", "last.0")
    wrong = node.nodectl("run", "--jobid=last_x", "true", user=NOBODY)
    assert (wrong.returncode, "tasks of an array are written like" in wrong.stderr) == (1, True), wrong.stderr
    ok(node, "run", "--jobid=last", "--overlap", "true")
    done = node.nodectl("log", f"{job}.1", user=NOBODY)
    assert (done.returncode, f"step {job}.1 has no file of its own" in done.stderr) == (1, True)
    assert node.nodectl("log", f"{job}.0", user=OTHER).returncode == 1


def test_log_reads_nothing_but_regular_files(node: Node) -> None:
    job = wrap(node, "echo", "-o", "pipe")
    ok(node, "wait", str(job))
    (node.scratch / "pipe").unlink()
    os.mkfifo(node.scratch / "pipe")
    (node.scratch / "pipe").chmod(0o666)
    done = node.nodectl("log", str(job), user=NOBODY)
    assert (done.returncode, "is no regular file" in done.stderr) == (1, True)


# wait


def test_wait_ends_with_the_status_of_the_first_job_that_failed(node: Node) -> None:
    good, bad, worse = (wrap(node, command) for command in ("true", "exit 3", "exit 4"))
    assert node.nodectl("wait", str(good), user=NOBODY).returncode == 0
    done = node.nodectl("wait", f"{good}-{worse}", user=NOBODY)
    assert (done.returncode, done.stderr) == (
        3,
        f"nodectl: job {bad}: FAILED: task 0 ended with exit code 3; `nodectl show {bad}` tells more\n",
    )
    assert node.nodectl("wait", str(worse), str(bad), user=NOBODY).returncode == 4


def test_who_waits_for_a_job_whose_output_cannot_be_opened_is_told_so(node: Node) -> None:
    for words in (["submit", "--wait", "--output=/root/x", "--wrap", "true"], ["wait", "last"]):
        done = node.nodectl(*words, user=NOBODY)
        assert done.returncode == 181
        assert "open output file '/root/x': Permission denied (as nobody); `nodectl show " in done.stderr


def test_wait_goes_on_until_all_tasks_of_an_array_have_ended(node: Node) -> None:
    array = wrap(node, "exit $SLURM_ARRAY_TASK_ID", "-a0-3%1")
    done = node.nodectl("wait", "last", user=NOBODY)
    told = f"nodectl: job {array}: not all of its tasks ended well, as {array}_1: FAILED; `nodectl acct -j {array}`"
    assert (done.returncode, done.stderr) == (3, f"{told} lists them\n")
    assert not queue(node)
    assert node.nodectl("wait", f"{array}_[0-2]", user=NOBODY).returncode == 1


def test_an_array_is_not_taken_for_the_task_that_ended_last(node: Node) -> None:
    array = wrap(node, "exit $((SLURM_ARRAY_TASK_ID < 1))", "-a0-1%1")
    assert node.nodectl("wait", "last", user=NOBODY).returncode == 1
    lists = f"`nodectl acct -j {array}` lists"
    assert f"array task:   {array}_1; {lists} all tasks\n" in ok(node, "show", str(array))
    assert f"array task:   {array}_1\n" in ok(node, "show", f"{array}_1")
    explained = node.nodectl("explain", str(array), user=NOBODY).stderr
    assert explained == f"nodectl: error: all tasks of job {array} have ended; {lists} them\n"


def test_wait_for_any_names_the_job_that_ended(node: Node) -> None:
    endless = wrap(node, FOREVER)
    job = wrap(node, f"{gated(node)}; exit 5")
    waiter = begun(node, "wait", "--any", str(endless), str(job))
    runs(node, job)
    open_gate(node)
    out, _ = waiter.communicate(timeout=PATIENCE)
    assert (waiter.returncode, out) == (5, f"{job}\n")


def test_wait_gives_up_when_its_time_is_over_and_fails_for_a_cancelled_job(node: Node) -> None:
    job = wrap(node, "true", "--hold")
    late = node.nodectl("wait", "last", "--timeout=1s", user=NOBODY)
    assert (late.returncode, late.stdout) == (124, "")
    assert late.stderr == "nodectl: timed out after 1 s waiting for last\n"
    waiter = begun(node, "wait", str(job))
    ok(node, "cancel", str(job))
    waiter.communicate(timeout=PATIENCE)
    assert waiter.returncode == 1


def test_who_follows_and_what_is_kept_of_ended_jobs_outlive_the_service() -> None:
    with running(**TURNS) as node:
        job = wrap(node, f"echo once; {gated(node)}; echo twice")
        follower = begun(node, "log", "-f", str(job))
        assert follower.stdout
        assert follower.stdout.readline() == "once\n"
        node.restart()
        open_gate(node)
        assert follower.communicate(timeout=PATIENCE) == ("twice\n", "")
        node.restart()
        assert ok(node, "log", "last") == "once\ntwice\n"
        again = int(ok(node, "resubmit", "last", "--parsable"))
        open_gate(node)
        ok(node, "wait", "last")
        assert ok(node, "log", str(again)) == "once\ntwice\n"


def test_who_waits_keeps_no_job_alive_whose_own_client_has_gone() -> None:
    """Else the job would wait for ever for its client, and the waiter for the job."""
    with running(**TURNS, interactive_lease=2) as node:
        blocker = wrap(node, FOREVER, f"-n{CPUS}")
        runs(node, blocker)
        client = node.popen("-n1", "true", user=NOBODY)
        wait_until(lambda: len(queue(node)) == 2, "it waits")
        job = max(int(one["job"]) for one in queue(node))
        waiter = begun(node, "wait", str(job))
        client.kill()
        client.communicate()
        waiter.communicate(timeout=PATIENCE)
        assert waiter.returncode == 1
        ok(node, "cancel", str(blocker))
        ended(node, blocker)


# Names of jobs.


def test_jobs_are_named_by_ranges_and_as_last_wherever_jobs_are_named(node: Node) -> None:
    first = wrap(node, FOREVER, "--hold")
    second, third = wrap(node, FOREVER, "--hold"), wrap(node, FOREVER, "--hold")
    ok(node, "release", f"{first}-{second}")
    runs(node, second)
    assert state(node, third) == "PENDING"
    ok(node, "update", "last", "--name=renamed")
    assert "renamed" in ok(node, "show", "last")
    assert len(json.loads(ok(node, "queue", "--json", "-j", f"{first}-{second},last"))["jobs"]) == 3
    ok(node, "signal", "-s", "CONT", f"{first}-{second}")
    assert "held" in ok(node, "explain", "last").lower()
    ok(node, "cancel", f"{first}-{third}")
    wait_until(lambda: not queue(node), "they have ended")
    done = node.nodectl("explain", str(third), user=NOBODY)
    assert f"job {third} has ended: CANCELLED (cancelled by uid {NOBODY.pw_uid})" in done.stderr


def test_trace_bcast_acct_and_options_take_the_same_names_of_jobs(node: Node) -> None:
    first, second = wrap(node, FOREVER, "-n1"), wrap(node, FOREVER, "-n1")
    runs(node, second)
    after = wrap(node, "true", "--dependency=afterany:last", "-n1")
    assert f"afterany:{second}" in ok(node, "show", str(after))
    held = wrap(node, "true", "--hold", "-n1")
    ok(node, "update", str(after), f"--dependency=afterany:{first}:last")
    assert f"afterany:{first},afterany:{held}" in ok(node, "show", str(after))
    assert json.loads(ok(node, "trace", "--json", f"{second}.batch").splitlines()[0])
    ok(node, "trace", str(first), "--compare", f"{second}.batch")
    (node.scratch / "sent").write_text("a file\n")
    ok(node, "bcast", "-f", "-j", f"{first}-{second}", str(node.scratch / "sent"), "copy")
    jobs = {job["job"] for job in json.loads(ok(node, "acct", "--json", "-j", f"{first}-{second},last"))["jobs"]}
    assert jobs == {first, second, held}
    done = node.nodectl("trace", f"{first}-{second}", user=NOBODY)
    assert (done.returncode, "one job at a time" in done.stderr) == (2, True)


def test_ps_has_the_command_that_was_submitted(node: Node) -> None:
    job = wrap(node, FOREVER)
    runs(node, job)
    (step,) = json.loads(ok(node, "ps", "--json"))["steps"]
    assert step["command"] == ["wrap", FOREVER]
    assert FOREVER in ok(node, "ps")
    assert "slurm_script" not in ok(node, "ps")
    ok(node, "cancel", str(job))
    ended(node, job)
    assert ok(node, "ps", "--ended", "1").splitlines()[1].endswith(f"  {FOREVER}")


def test_last_is_the_newest_job_of_the_caller_alone(node: Node) -> None:
    mine = wrap(node, "true")
    ok(node, "wait", "last")
    theirs = wrap(node, "true", user=OTHER)
    node.nodectl("wait", "last", user=OTHER)
    assert json.loads(ok(node, "show", "last.batch", "--json"))["job"] == mine
    assert json.loads(node.nodectl("show", "last", "--json", user=OTHER).stdout)["job"] == theirs


def test_tasks_of_arrays_are_named_wherever_steps_are(node: Node) -> None:
    array = wrap(node, FOREVER, "-a0-1", "-n1")
    wait_until(lambda: len([one for one in queue(node) if one["state"] == "RUNNING"]) == min(2, CPUS), "they run")
    shown = json.loads(ok(node, "show", "--json", f"{array}_0"))
    assert (shown["state"], shown["output"]) == ("RUNNING", f"{node.scratch}/slurm-{array}_0.out")
    step = f"{array}_0.batch"
    assert step in ok(node, "acct", "-j", step)
    for verb in ("log", "show", "explain", "trace", "signal --signal=CONT", "suspend", "resume", "attach --layout"):
        ok(node, *verb.split(), step)
    ok(node, "enter", step, "true")
    attached = node.nodectl("attach", step, user=NOBODY)
    assert (attached.returncode, "`nodectl log -f" in attached.stderr) == (1, True), attached.stderr
    for verb in ("wait", "hold", "release", "requeue", "resubmit", "queue -j"):
        refused = node.nodectl(*verb.split(), step, user=NOBODY)
        assert refused.returncode == 2, (verb, refused)
        assert f"{step!r} is no job, but a step; give its job: {array}_0\n" in refused.stderr
    refused = node.nodectl("update", step, "--time=50", user=NOBODY)
    assert "of jobs only, not of steps; name the job alone" in refused.stderr
    assert ok(node, "cancel", "-v", step) == f"{shown['job']}.batch\n"
    ok(node, "cancel", f"{array}_[0-1]")


def test_a_job_that_waits_has_nothing_to_attach_to_or_to_enter_yet(node: Node) -> None:
    job = wrap(node, "true", "--hold")
    for verb in ("attach", "enter"):
        refused = node.nodectl(verb, str(job), user=NOBODY)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"job {job} waits: it has no steps yet; `nodectl explain {job}` says what for\n" in refused.stderr
    ok(node, "cancel", str(job))


# resubmit


def test_a_job_is_submitted_once_more_as_it_was(node: Node) -> None:
    path = script(node, '#SBATCH -J again --comment="two words"\necho "$WORD $1 $PWD"')
    job = submit(node, path, "argument", env={"WORD": "kept"})
    ok(node, "wait", str(job))
    (node.scratch / "job.sh").unlink()
    again = int(ok(node, "resubmit", "--parsable", "last"))
    ok(node, "wait", str(again))
    assert ok(node, "log", str(again)) == ok(node, "log", str(job)) == f"kept argument {node.scratch}\n"
    third = int(ok(node, "resubmit", str(job), "--parsable", "-J", "renamed", "-o", "other-%x"))
    ok(node, "wait", str(third))
    assert (node.scratch / "other-renamed").read_text() == f"kept argument {node.scratch}\n"


def test_of_an_array_only_the_tasks_are_repeated_that_failed(node: Node) -> None:
    (node.scratch / "broken").touch()
    line = "echo $SLURM_ARRAY_TASK_ID >>ran; [ $((SLURM_ARRAY_TASK_ID % 2)) = 0 ] || [ ! -e broken ]"
    array = wrap(node, line, "-a0-4%2")
    node.nodectl("wait", str(array), user=NOBODY)
    (node.scratch / "broken").unlink()
    (node.scratch / "ran").unlink()
    again = int(ok(node, "resubmit", str(array), "--failed", "--parsable"))
    assert node.nodectl("wait", str(again), user=NOBODY).returncode == 0
    assert sorted((node.scratch / "ran").read_text().split()) == ["1", "3"]
    done = node.nodectl("resubmit", "--failed", str(again), user=NOBODY)
    assert (done.returncode, f"nothing of job {again} has failed" in done.stderr) == (1, True)
    held = ok(node, "resubmit", "--failed", str(array), "--hold", "--parsable").strip()
    assert [one["id"] for one in queue(node)] == [f"{held}_[1,3%2]"], "options may stand behind the job, too"
    ok(node, "cancel", held)
    done = node.nodectl("resubmit", "--failed", f"{array}_2", user=NOBODY)
    assert (done.returncode, f"nothing of job {array}_[2] has failed" in done.stderr) == (1, True)


def test_root_repeats_a_users_job_as_that_user(node: Node) -> None:
    """The script is the user's text."""
    job = wrap(node, "id -u; id -g; id -G")
    ok(node, "wait", str(job))
    again = node.nodectl("resubmit", "--parsable", str(job))
    assert (again.returncode, again.stderr) == (0, "")
    assert said(node, int(again.stdout)) == said(node, job)
    theirs = node.nodectl("resubmit", "--parsable", f"--uid={OTHER.pw_uid}", "--output=/dev/null", str(job))
    shown = json.loads(node.nodectl("show", f"{theirs.stdout.strip()}.batch", "--json").stdout)
    assert (shown["uid"], shown["gid"]) == (OTHER.pw_uid, OTHER.pw_gid)


def test_tasks_cancelled_while_they_waited_are_repeated_and_those_that_completed_are_not(node: Node) -> None:
    array = wrap(node, f"[ $SLURM_ARRAY_TASK_ID = 0 ] || {FOREVER}", "-a0-4%1")
    wait_until(lambda: state_of_task(node, array, 1) == "RUNNING", "task 0 is over")
    ok(node, "cancel", str(array))
    node.nodectl("wait", str(array), user=NOBODY)
    again = int(ok(node, "resubmit", "--parsable", "--failed", "--hold", str(array)))
    assert [one["array_tasks"] for one in queue(node) if one["job"] == again] == ["1,2-4"]


def test_of_an_array_cancelled_between_two_tasks_the_completed_one_is_not_repeated(node: Node) -> None:
    array = wrap(node, "true", "-a0-4", "--hold")
    ok(node, "release", f"{array}_0")
    ok(node, "wait", f"{array}_0")
    ok(node, "cancel", str(array))
    again = int(ok(node, "resubmit", "--parsable", "--failed", "--hold", str(array)))
    assert [one["array_tasks"] for one in queue(node) if one["job"] == again] == ["1-4"]
    some = int(ok(node, "resubmit", "--parsable", "--failed", "--hold", f"{array}_2"))
    assert [one["array_tasks"] for one in queue(node) if one["job"] == some] == ["2"]


def test_wait_fails_for_an_array_whose_tasks_never_ran(node: Node) -> None:
    array = wrap(node, "true", "-a0-3", "--hold")
    ok(node, "cancel", str(array))
    done = node.nodectl("wait", str(array), user=NOBODY)
    assert (done.returncode, f"as {array}_[0-3]: CANCELLED" in done.stderr) == (1, True)


def test_nobody_else_submits_or_reads_the_script_of_a_job(node: Node) -> None:
    job = wrap(node, "echo secret")
    ok(node, "wait", str(job))
    done = node.nodectl("resubmit", str(job), user=OTHER)
    assert (done.returncode, "secret" in done.stdout + done.stderr) == (1, False)
    assert f"job {job} is not yours" in done.stderr


# What is told.


def test_show_tells_command_files_and_limits_without_empty_lines(node: Node) -> None:
    held = wrap(node, "sleep 5; true", "--hold", "--time=1h30m")
    facts = dict(line.split(": ", 1) for line in ok(node, "show", str(held)).splitlines())
    assert facts["command"].strip() == "sleep 5; true"
    assert facts["output"].strip() == f"{node.scratch}/slurm-{held}.out"
    assert facts["time limit"].strip() == "01:30:00"
    assert "held" in facts["reason"].lower()
    assert "mib" not in facts
    job = wrap(node, FOREVER, "--time=5")
    runs(node, job)
    text = ok(node, "show", str(job))
    assert "slurm_script" not in text
    assert f"{node.scratch}/slurm-{job}.out" in text
    assert "00:05:00" in text


def test_submit_tells_a_person_where_the_output_goes_and_a_program_nothing(node: Node) -> None:
    ours, theirs = os.openpty()
    command = node.command("submit", "--wrap=true")
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=node.scratch,
        env=node.environment(), user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[], check=True,
    )  # fmt: skip
    job = done.stdout.split()[-1]
    said = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(theirs)
    assert f"{node.scratch}/slurm-{job}.out" in said
    assert f"nodectl log -f {job}" in said
    assert done.stdout == f"Submitted batch job {job}\n"


# update


def test_cpus_and_command_of_a_waiting_job_change(node: Node) -> None:
    job = wrap(node, "echo old", "--hold", f"-n{CPUS}", "--mem=30M")
    ok(node, "update", "last", "-n", "1", "--command", "echo $SLURM_NTASKS $SLURM_CPUS_PER_TASK", "-c1")
    (row,) = queue(node)
    assert (row["cpus"], row["tasks"], row["memory"]) == (1, 1, 30)
    assert "echo $SLURM_NTASKS" in ok(node, "show", str(job))
    ok(node, "release", str(job))
    assert node.nodectl("wait", str(job), user=NOBODY).returncode == 0
    assert "1 1" in ok(node, "log", str(job)).splitlines()  # a warning may come before or after it


def test_a_change_that_the_machine_cannot_fulfil_leaves_the_job_as_it_was(node: Node) -> None:
    job = wrap(node, "echo old", "--hold", "-n1")
    for words in (("-n", str(CPUS + 1)), ("--gres=gpu:1",), ("--command=x", "-n", "9999")):
        done = node.nodectl("update", str(job), *words, user=NOBODY)
        assert done.returncode == 1, words
    (row,) = queue(node)
    assert (row["cpus"], row["command"]) == (1, ["wrap", "echo old"])
    ok(node, "release", str(job))
    ok(node, "wait", str(job))
    assert ok(node, "log", str(job)) == "old\n"


def test_the_script_of_a_running_job_or_of_another_user_cannot_change(node: Node) -> None:
    job = wrap(node, FOREVER)
    runs(node, job)
    done = node.nodectl("update", str(job), "--command=true", user=NOBODY)
    assert (done.returncode, "does not wait any more" in done.stderr) == (1, True)
    done = node.nodectl("update", str(job), "--command=true", user=OTHER)
    assert (done.returncode, "is not yours" in done.stderr) == (1, True)


def test_tasks_of_an_array_change_together_or_not_at_all(node: Node) -> None:
    array = wrap(node, "echo old", "-a0-1", "--hold")
    done = node.nodectl("update", f"{array}_1", "--command=echo new", user=NOBODY)
    assert (done.returncode, "the whole array's" in done.stderr) == (1, True)
    ok(node, "update", str(array), "--command=echo new")
    ok(node, "release", str(array))
    ok(node, "wait", str(array))
    assert ok(node, "log", f"{array}_0") == ok(node, "log", f"{array}_1") == "new\n"


def test_the_script_of_an_array_stays_once_a_task_of_it_is_a_job_of_its_own(node: Node) -> None:
    """It would have the new script, with the CPUs for the old one."""
    array = wrap(node, "echo old", "-a0-3", "--hold", "-n1")
    ok(node, "update", f"{array}_3", "--comment=apart")
    for name in (str(array), f"{array}_[0-2]"):
        done = node.nodectl("update", name, "--command=echo new", user=NOBODY)
        assert (done.returncode, f"{array}_3 is a task of its own" in done.stderr) == (1, True), done.stderr
    assert {one["command"][1] for one in queue(node)} == {"echo old"}


def test_an_admin_changes_limits_of_others_jobs_but_not_what_runs_as_them() -> None:
    with running(**TURNS, admin_group=grp.getgrgid(OTHER.pw_gid).gr_name) as node:
        mine, roots = wrap(node, "echo old", "--hold"), wrap(node, "echo old", "--hold", user=None)
        for job in (mine, roots):
            assert node.nodectl("update", str(job), "--time=5", user=OTHER).returncode == 0
            for words in (("--command=id",), ("-n1",), ("--gres=gpu:0",)):
                done = node.nodectl("update", str(job), *words, user=OTHER)
                assert (done.returncode, f"job {job} is not yours" in done.stderr) == (1, True), done.stderr
        assert node.nodectl("update", str(mine), "--command=echo new").returncode == 0  # root's
        node.nodectl("release", str(mine))
        ok(node, "wait", str(mine))
        assert ok(node, "log", str(mine)) == "new\n"


def test_calls_that_change_a_job_at_once_leave_no_success_undone(node: Node) -> None:
    text = "".join(f"# {number}\n" for number in range(200_000))  # it is read and written in pieces
    job = submit(node, "--hold", "-n1", script(node, text))
    names = [f"V{number}" for number in range(8)]

    def change(name: str) -> Mapping[str, object]:
        return node.call("UpdateJob", job=str(job), request={"environment": {name: "set"}})

    with ThreadPoolExecutor(len(names)) as threads:
        answers = dict(zip(names, threads.map(change, names), strict=True))
    done = {name for name, answer in answers.items() if not answer}
    assert done, answers
    request: Any = node.call("Script", job=str(job))["request"]
    assert done == set(names) & request["environment"].keys()


def test_the_devices_of_a_waiting_job_change() -> None:
    with running(**TURNS, gres=["Name=gpu File=/dev/null", "Name=gpu File=/dev/zero"]) as node:
        job = wrap(node, "echo got $CUDA_VISIBLE_DEVICES", "--hold", "--gpus=2")
        assert "gpu:2" in ok(node, "show", str(job))
        ok(node, "update", "last", "--gres=gpu:1", "--time=1h")  # instead of --gpus
        assert "gpu:1" in ok(node, "show", str(job))
        ok(node, "release", "last")
        ok(node, "wait", "last")
        assert "got 0\n" in ok(node, "log", "last")


@pytest.mark.parametrize(
    "request_",
    [{"layout": 5}, {"layout": ["gpus"]}, {"layout": {"gpus": 1}}, {"environment": ""}, {"argv": 3}, {"argv": []},
     {"ntasks": "4"}, {"ntasks": 0}, {"uid": "0"}, {"secure": "none"}, {"layout": {"unknown": "1"}}],
)  # fmt: skip
def test_a_malformed_change_is_refused_and_changes_nothing(node: Node, request_: dict[str, object]) -> None:
    job = wrap(node, "true", "--hold", "-n1")
    before = node.call("ShowJob", job=str(job))
    answer = node.call("UpdateJob", job=str(job), request=request_)
    assert answer.get("error") == "org.nodectl.InvalidRequest", answer
    assert node.call("ShowJob", job=str(job)) == before


def test_a_waiting_job_keeps_its_memory_with_the_reason_where_the_machine_has_less(node: Node) -> None:
    job = wrap(node, "true", "--hold", "-n1")
    done = node.nodectl("update", str(job), "--mem=900T", user=NOBODY)
    assert done.returncode == 1
    assert f"job {job} is as it was: " in done.stderr
    assert f"no step {job}.0" in node.nodectl("update", str(job), "--mem=1M", user=OTHER).stderr
    ok(node, "cancel", str(job))


def test_the_log_says_that_the_directory_of_the_output_is_missing(node: Node) -> None:
    job = wrap(node, "true", "--output=logs/out")
    node.nodectl("wait", str(job), user=NOBODY)
    done = node.nodectl("log", str(job), user=NOBODY)
    assert done.returncode == 1
    assert f"which is not there: there is no directory {node.scratch}/logs" in done.stderr


def test_a_person_is_warned_that_the_directory_of_the_output_is_missing(node: Node) -> None:
    words = ("submit", "--hold", "--output=logs/out", "--wrap", "true")
    with at_terminal(node.command(*words), cwd=str(node.scratch), env=node.environment()) as terminal:
        terminal.wait_for(f"warning: there is no directory {node.scratch}/logs; without it")
        assert terminal.wait_for_end() == 0
    node.nodectl("cancel", "last")
