"""nodectl queue, cancel, hold, release, requeue, update, explain, reserve, node, suspend: what they show and do."""

from __future__ import annotations

import json
import pwd
import signal

import pytest

from rootful.jobs.machine import CPUS, FOREVER, ended, queue, runs, state, submit, wrap
from rootful.node import NOBODY, OTHER, Node, wait_until


@pytest.fixture
def node(queued: Node) -> Node:
    """Whose jobs take turns."""
    return queued


def ok(node: Node, *words: str, user: pwd.struct_passwd | None = NOBODY) -> str:
    done = node.nodectl(*words, user=user)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(node: Node, *words: str, user: pwd.struct_passwd | None = NOBODY) -> str:
    done = node.nodectl(*words, user=user)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_the_queue_tells_who_runs_where_and_who_waits_why(node: Node) -> None:
    first = wrap(node, FOREVER, f"-n{CPUS}", "-J", "first", "-t", "60")
    runs(node, first)
    second = wrap(node, "true", "-J", "second", user=OTHER)
    lines = ok(node, "queue", user=None).splitlines()
    assert lines[0].split()[:6] == ["JOB", "USER", "NAME", "STATE", "TIME", "CPUS"]
    assert lines[1].split()[:4] == [str(first), "nobody", "first", "RUNNING"]
    assert lines[2].split()[:4] == [str(second), "daemon", "second", "PENDING"]
    assert f"CPUs 0-{CPUS - 1}" in lines[1]
    assert ok(node, "queue", "--no-header", "-o", "job,state", "-u", "daemon").split() == [str(second), "PENDING"]
    assert [one["job"] for one in queue(node, "--me", user=NOBODY)] == [first]
    assert [one["job"] for one in queue(node, "-t", "PD")] == [second]
    assert [one["job"] for one in queue(node, "-n", "first")] == [first]
    (waits,) = queue(node, "--start")
    (holds,) = queue(node, "-j", str(first))
    assert waits["start"] >= holds["start"] + 3600


def test_an_explanation_names_who_has_what_a_job_waits_for(node: Node) -> None:
    first = wrap(node, FOREVER, f"-n{CPUS}", "-t", "60")
    runs(node, first)
    second = wrap(node, "true", user=OTHER)
    text = ok(node, "explain", str(second))
    assert "Resources" in text
    assert str(first) in text
    assert json.loads(ok(node, "explain", "--json", str(second)))["reason"] == "Resources"
    held = wrap(node, "true", "-H")
    assert "release" in ok(node, "explain", str(held))
    assert "no job 4000000 waits, runs" in refused(node, "explain", "4000000")
    assert ok(node, "explain", str(first)).startswith("allocated CPUs: ")  # of one that runs, its layout


def test_each_ended_task_of_a_list_is_explained_by_its_own_name(node: Node) -> None:
    array = wrap(node, "true", "-a", "0-2")
    ok(node, "wait", str(array))
    done = node.nodectl("explain", f"{array}_[1-2]", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()
    assert f"job {array}_1 has ended: COMPLETED" in first
    assert f"job {array}_2 has ended: COMPLETED" in second


def test_a_task_that_has_ended_is_not_called_by_the_name_of_another_one(node: Node) -> None:
    array = wrap(node, "true", "-a", "2-3")
    ok(node, "wait", str(array))
    for verb in ("cancel", "hold", "update --nice=1"):
        assert f"job {array}_2 has ended: COMPLETED" in refused(node, *verb.split(), f"{array}_2")
        assert f"job {array}_3 has ended: COMPLETED" in refused(node, *verb.split(), f"{array}_3")
        assert f"no job {array}_1 waits or runs" in refused(node, *verb.split(), f"{array}_1")
        assert f"no job {array}_[2-3] waits or runs" in refused(node, *verb.split(), f"{array}_[2-3]")
        assert f"all tasks of job {array} have ended" in refused(node, *verb.split(), str(array))
    done = node.nodectl("log", str(array), user=NOBODY)
    assert (done.returncode, f"name a task, as {array}_3 or" in done.stderr) == (2, True)


def test_json_of_several_is_one_document_with_all_that_were_found(node: Node) -> None:
    ended_one = wrap(node, "true")
    ok(node, "wait", str(ended_one))
    held = wrap(node, "true", "-H", "-a", "0-3")
    done = node.nodectl("show", "--json", str(ended_one), "4000000", str(held), user=NOBODY)
    assert [one["job"] for one in json.loads(done.stdout)["records"]] == [ended_one, held]
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "4000000" in done.stderr
    done = node.nodectl("explain", "--json", str(ended_one), f"{held}_[0-1]", user=NOBODY)
    assert [one["job"] for one in json.loads(done.stdout)["explanations"]] == [f"{held}_[0-1]"]
    assert (done.returncode, f"job {ended_one} has ended" in done.stderr) == (1, True)
    assert json.loads(ok(node, "show", "--json", str(held)))["job"] == held
    lines = node.nodectl("show", "4000000", str(ended_one), user=NOBODY)
    assert (lines.returncode, lines.stdout.startswith("step: "), "4000000" in lines.stderr) == (1, True, True)


def test_a_drained_node_is_undrained_by_that_word_too(node: Node) -> None:
    ok(node, "node", "drain", "test", user=None)
    assert "DRAINED" in ok(node, "node")
    ok(node, "node", "undrain", user=None)
    assert "DRAIN" not in ok(node, "node")


def test_jobs_are_cancelled_by_number_task_user_name_and_state(node: Node) -> None:
    one, two = (wrap(node, FOREVER, "-H", "-J", name) for name in ("one", "two"))
    array = wrap(node, FOREVER, "-H", "-a", "0-9", "-J", "many")
    others = wrap(node, FOREVER, "-H", "-J", "one", user=OTHER)
    ok(node, "cancel", f"{array}_[0-4,9]", f"{array}_6")
    assert f"no job {array}_9 waits or runs" in refused(node, "cancel", f"{array}_9")
    assert f"{array}_[5,7-8] is job {array}" in refused(node, "update", f"{array}_7", "ArrayTaskThrottle=1")
    ok(node, "update", f"{array}_[5,7-8]", "--nice=5")
    (left,) = queue(node, "-n", "many")
    assert left["array_tasks"] == "5,7-8"
    assert ok(node, "cancel", "-v", "-n", "one").split() == [str(one)]
    assert "cancel" in refused(node, "cancel", str(others))
    ok(node, "cancel", "--me", "-t", "PD")
    assert [job["job"] for job in queue(node)] == [others]
    assert two != others
    ok(node, "cancel", "-u", "daemon", user=None)
    assert not queue(node)


def test_a_signal_reaches_steps_or_the_script_alone(node: Node) -> None:
    job = wrap(node, "trap 'echo script; exit 0' USR1; touch trapped; while :; do sleep 0.1; done")
    wait_until((node.scratch / "trapped").exists, "it has set its trap")
    ok(node, "cancel", "-s", "USR1", "--batch", str(job))
    ended(node, job)
    assert (node.scratch / f"slurm-{job}.out").read_text(encoding="utf-8") == "script\n"


def test_what_is_cancelled_while_it_runs_is_over(node: Node) -> None:
    job = wrap(node, FOREVER)
    runs(node, job)
    ok(node, "cancel", str(job))
    ended(node, job)
    assert node.call("ShowJob", job=str(job))["record"]["state"] == "CANCELLED"  # type: ignore[index]


def test_a_requeued_job_begins_again_under_its_number(node: Node) -> None:
    job = wrap(node, "echo run $SLURM_RESTART_COUNT; exec sleep 1000", "--open-mode=append", "--requeue")
    output = node.scratch / f"slurm-{job}.out"
    wait_until(lambda: output.exists() and "run" in output.read_text(encoding="utf-8"), "it runs")
    ok(node, "requeue", "--hold", str(job))
    wait_until(lambda: state(node, job) == "PENDING", "it waits again")
    ok(node, "release", str(job))
    wait_until(lambda: "run 1" in output.read_text(encoding="utf-8"), "it runs again")
    (found,) = queue(node)
    assert found["restarts"] == 1


def test_a_user_who_does_not_exist_is_refused_and_not_taken_for_one_without_jobs(node: Node) -> None:
    job = wrap(node, "true", "-H")
    for verb in ("queue", "cancel"):
        done = node.nodectl(verb, "-u", "nobody,no-such-user", user=NOBODY)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no user 'no-such-user' on this machine" in done.stderr
    assert state(node, job) == "PENDING"
    for name in (NOBODY.pw_name, str(NOBODY.pw_uid)):
        assert ok(node, "queue", "--no-header", "-o", "job", "-u", name).split() == [str(job)]


def test_who_cancels_or_waits_for_the_jobs_of_another_user_is_refused(node: Node) -> None:
    mine, theirs = wrap(node, "true", "-H"), wrap(node, "true", "-H", user=OTHER)
    for words in (["cancel", "-u", OTHER.pw_name], ["cancel", "--me", "-u", OTHER.pw_name], ["wait", str(theirs)]):
        assert f"job {theirs} is not yours" in refused(node, *words)
    assert (state(node, mine), state(node, theirs)) == ("PENDING", "PENDING")
    assert f"job {theirs} " in refused(node, "cancel", str(theirs))
    ok(node, "cancel", "-u", NOBODY.pw_name)
    assert (state(node, mine), state(node, theirs)) == ("", "PENDING")
    ok(node, "cancel", "-u", OTHER.pw_name, user=None)


def test_a_waiting_job_can_be_changed(node: Node) -> None:
    job = wrap(node, "true", "-H", "-t", "60")
    ok(node, "update", str(job), "--time=30", "--nice=50", "Comment=words", "JobName=other")
    (found,) = queue(node)
    assert (found["time_limit"], found["nice"], found["name"]) == (1800, 50, "other")
    assert "priority" in refused(node, "update", str(job), "--priority=TOP").lower()
    for empty in ("--name=", "--name= ", "JobName="):
        done = node.nodectl("update", str(job), empty, user=NOBODY)
        assert (done.returncode, "Invalid empty name" in done.stderr) == (2, True)
    refused(node, "update", str(job), "--nice=5", user=OTHER)
    ok(node, "update", str(job), "--priority=1000", user=None)


def test_a_reservation_keeps_cpus_for_its_users(node: Node) -> None:
    refused(node, "reserve", "create", "mine", "--duration=60", "--users=nobody")
    name = ok(node, "reserve", "create", "course", "--duration=60", "--users=nobody", user=None).strip()
    assert name == "course"
    again = refused(node, "reserve", "create", "course", "--duration=60", "--users=nobody", user=None)
    assert again == "nodectl: error: name: there is a reservation 'course'\n", "which is no option"
    assert ok(node, "reserve").splitlines()[1].split()[0] == "course"
    assert json.loads(ok(node, "reserve", "list", "--json"))["reservations"][0]["users"] == ["nobody"]
    outside = wrap(node, "true", "-t", "10", user=OTHER)
    assert state(node, outside) == "PENDING"
    inside = submit(node, "--reservation=course", "--wrap=true", "-t", "10")
    ended(node, inside)
    assert state(node, outside) == "PENDING"
    ok(node, "reserve", "delete", "course", user=None)
    ended(node, outside)
    refused(node, "reserve", "delete", "course", user=None)


def test_a_reservation_that_comes_again_is_there_after_its_end_and_a_restart(node: Node) -> None:
    words = ("--duration=60", "--users=nobody", "--repeat=weekly")
    ok(node, "reserve", "create", "course", "--start=now+2days", *words, user=None)
    refused(node, "reserve", "create", "late", "--start=now+16days", "--duration=60", "--users=nobody", user=None)
    refused(node, "reserve", "create", "long", "--duration=8-0", "--users=nobody", "--repeat=daily", user=None)
    node.restart()
    (line,) = ok(node, "reserve").splitlines()[1:]
    assert line.split()[4] == "weekly"
    ok(node, "reserve", "delete", "course", user=None)


def test_a_drained_node_starts_nothing_until_it_is_resumed(node: Node) -> None:
    refused(node, "node", "drain", "because")
    ok(node, "node", "drain", "new", "disk", user=None)
    assert "new disk" in ok(node, "node")
    job = wrap(node, "true")
    assert state(node, job) == "PENDING"
    node.restart()
    assert "new disk" in ok(node, "node", "show")
    assert state(node, job) == "PENDING"
    ok(node, "node", "resume", user=None)
    ended(node, job)
    assert json.loads(ok(node, "node", "show", "--json"))["nodes"][0]["cpus"] == CPUS


def test_a_suspended_job_gives_its_cpus_to_others(node: Node) -> None:
    job = wrap(node, FOREVER, f"-n{CPUS}")
    runs(node, job)
    ok(node, "suspend", str(job), user=None)
    assert state(node, job) == "SUSPENDED"
    assert "it is suspended" in ok(node, "explain", str(job))
    other = wrap(node, "true", f"-n{CPUS}", user=OTHER)
    ended(node, other)
    ok(node, "resume", str(job), user=None)
    wait_until(lambda: state(node, job) == "RUNNING", "it goes on")


@pytest.mark.parametrize("command", ["hold", "release", "requeue", "cancel", "explain", "suspend", "resume"])
def test_a_job_that_is_not_there_is_named_in_one_line(node: Node, command: str) -> None:
    assert "4000000" in refused(node, command, "4000000")


def test_tasks_of_an_array_are_held_released_and_changed_alone(node: Node) -> None:
    running = wrap(node, FOREVER, f"-n{CPUS}")
    array = wrap(node, "exit 3", "-a", "0-9", "-J", "many")
    ok(node, "hold", f"{array}_3", f"{array}_[5-6]")
    ok(node, "update", f"{array}_8", "--nice=7")
    found = {job["id"]: (job["reason"], job["nice"]) for job in queue(node, "-n", "many")}
    for task in (3, 5, 6):
        assert found.pop(f"{array}_{task}") == ("JobHeldUser", 0)
    assert found.pop(f"{array}_8")[1] == 7
    assert [name.partition("_")[2] for name in found] == ["[0-2,4,7,9]"]
    node.restart(signal.SIGKILL)
    refused(node, "release", f"{array}_3", user=OTHER)
    ok(node, "release", f"{array}_3")
    ok(node, "cancel", str(running))
    wait_until(lambda: {job["id"] for job in queue(node)} == {f"{array}_5", f"{array}_6"}, "the others have ended")
    records = json.loads(ok(node, "acct", "--json", "-X", "-j", str(array)))
    assert sorted(str(one["id"]) for one in records["jobs"] if one["state"] == "FAILED") == [
        f"{array}_{task}" for task in (0, 1, 2, 3, 4, 7, 8, 9)
    ]
    ok(node, "release", str(array))
    wait_until(lambda: not queue(node), "all have ended")
    assert "1000 tasks are the most" in refused(node, "hold", f"{wrap(node, 'true', '-H', '-a', '0-5000')}_[0-4000]")


def test_an_array_of_which_tasks_run_is_held_and_released(node: Node) -> None:
    array = wrap(node, FOREVER, "-a", f"0-{CPUS}", "-n1")
    wait_until(lambda: sum(job["state"] == "RUNNING" for job in queue(node)) == CPUS, "some run")
    ok(node, "hold", str(array))
    assert [job["reason"] for job in queue(node) if job["state"] == "PENDING"] == ["JobHeldUser"]
    assert "is RUNNING" in refused(node, "hold", f"{array}_0")
    ok(node, "release", str(array))
