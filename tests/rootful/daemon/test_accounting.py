"""nodectl acct and nodectl report over a real daemon: whose figures are told to whom, and long histories."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from nodectl.service.daemon.history.store import Ended, Store
from rootful.node import NOBODY, OTHER, Node, wait_until

MANY = 20_000
# In the step runner, somebody sets the machine's clock by this many seconds while the tasks run.
SETS_THE_CLOCK = """
import time

def slurm_spank_task_post_fork(sp, ac, argv):
    told = time.time
    time.time = lambda: told() + float(argv[0])
"""


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


def acct(node: Node, *words: str, user: Any = None) -> list[list[str]]:
    done = node.nodectl("acct", "-nP", *words, user=user)
    assert done.returncode == 0, done.stderr
    return [line.split("|") for line in done.stdout.splitlines()]


def test_jobs_and_steps_are_told_with_what_they_used(node: Node) -> None:
    node.start()
    node.run("-J", "burner", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 3", user=NOBODY)
    with node.popen("-J", "sleeper", "sh", "-c", "echo on; exec sleep 60") as sleeper:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        rows = acct(node, "-o", "jobid,jobname,user,state,exitcode,ncpus")
        assert [row[:5] for row in rows] == [
            ["1", "burner", "nobody", "FAILED", "3:0"],
            ["1.0", "burner", "", "FAILED", "3:0"],
            ["2", "sleeper", "root", "RUNNING", "0:0"],
            ["2.0", "sleeper", "", "RUNNING", "0:0"],
        ]
        [[total, user, elapsed]] = acct(node, "-Xj1", "-o", "totalcpu,usercpu,elapsedraw")
        assert total >= user > "00:00.050"
        assert int(elapsed) < 60
        assert [row[0] for row in acct(node, "-j", "1.0,2", "-o", "jobid")] == ["1", "1.0", "2", "2.0"]
        assert [row[0] for row in acct(node, "-X", "-s", "r", "-o", "jobid")] == ["2"]
        assert [row[0] for row in acct(node, "-X", "--name=burner,x", "-o", "jobid")] == ["1"]
        assert acct(node, "-E", "yesterday") == []
        sleeper.terminate()


@pytest.mark.parametrize("by", [90_000, -90_000])
def test_a_step_is_as_long_as_it_was_though_the_clock_is_set_while_it_runs(node: Node, by: int) -> None:
    node.start()
    node.plugstack(f"required {node.plugin('sets', SETS_THE_CLOCK)} {by}\n")
    began = time.monotonic()
    done = node.run("sleep", "1", user=NOBODY)
    assert done.returncode == 0, done.stderr
    took = time.monotonic() - began
    [[name, elapsed]] = acct(node, "-j", "1.0", "-o", "jobid,elapsedraw")[1:]
    assert name == "1.0"
    assert 1 <= int(elapsed) <= took


def test_users_are_told_of_what_is_theirs(node: Node) -> None:
    node.start()
    node.run("true", user=NOBODY)
    node.run("true", user=OTHER)
    node.run("true")
    assert [row[0] for row in acct(node, "-Xo", "user")] == ["nobody", OTHER.pw_name, "root"]
    assert [row[0] for row in acct(node, "-Xo", "user", "-u", f"nobody,{OTHER.pw_uid}")] == ["nobody", OTHER.pw_name]
    assert [row[0] for row in acct(node, "-Xo", "user", user=NOBODY)] == ["nobody"]
    assert acct(node, "-Xj", "2,3", user=NOBODY) == []
    refused = node.nodectl("acct", "-u", "root", user=NOBODY)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "nodectl: error: only admins are told what others have used\n"
    for of, whose in (("steps", "uid"), ("jobs", "user_id")):
        reply = node.call("Accounting", of=of, jobs=[1, 2, 3])
        assert [record[whose] for record in reply["records"]].count(NOBODY.pw_uid) == 1  # type: ignore[attr-defined]


def test_words_that_make_no_sense_are_refused_in_one_line(node: Node) -> None:
    node.start()
    for words in (
        ("-j", "x"), ("-j", "0"), ("-j", "7.x"), ("-u", "no-such-user"), ("-S", "someday"), ("-o", "nothing"),
        ("-s", "done"), ("-E", "now-"),
    ):  # fmt: skip
        done = node.nodectl("acct", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), words
    for parameters in ({"of": "x"}, {"of": "steps", "next": "x"}, {"of": "jobs", "next": "named 1 2 3"}):
        assert node.call("Accounting", **parameters)["error"] == "org.nodectl.InvalidRequest"


def remember(node: Node, count: int) -> None:
    """Steps of two users in turns, one each second up to now."""
    store = Store(f"{node.values['state_dir']}/history.db", count)
    now = time.time()
    store.add(
        [
            Ended(
                {
                    "job": store.next_job(), "step": 0, "uid": user.pw_uid, "user": user.pw_name, "name": "x" * 100,
                    "state": "COMPLETED", "ntasks": 1, "cpus": "1", "command": ["x" * 500], "reason": "",
                    "submitted": now - count + n - 2, "started": now - count + n - 1, "ended": now - count + n,
                    "tasks": [
                        {"task": 0, "status": 0, "user_seconds": 0.5, "system_seconds": 0.25, "max_rss_kib": 1024}
                    ],
                },
                b"",
            )
            for n, user in enumerate((NOBODY, OTHER) * (count // 2))
        ]
    )  # fmt: skip
    store.close()


def test_long_history_is_told_whole_while_the_daemon_serves_others(node: Node) -> None:
    node.configure(history_limit=2 * MANY)
    remember(node, MANY)
    node.start()
    words = node.command("acct", "-nXP", "-S", "now-2days", "-o", "jobid,user,totalcpu")
    everything = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=node.environment())
    assert node.run("echo", "served", user=NOBODY).stdout == "served\n"
    told = [line.split("|") for line in everything.communicate()[0].splitlines()]
    assert [int(row[0]) for row in told if int(row[0]) <= MANY] == list(range(1, MANY + 1))
    assert told[0] == ["1", "nobody", "00:00.750"]
    since = f"now-{MANY // 2}"
    assert 9_900 <= len(acct(node, "-X", "-S", since, "-o", "jobid")) <= 10_002
    assert len(acct(node, "-X", "-S", "now-2days", "-o", "jobid", user=OTHER)) == MANY // 2
    reply = node.call("Accounting", of="steps")
    assert len(json.dumps(reply)) < 1 << 20
    assert reply["next"]


def test_report_sums_up_and_draws(node: Node, tmp_path: Path) -> None:
    remember(node, 2000)
    node.start()
    found = json.loads(node.nodectl("report", "--json", "--by=total", "-S", "now-2days").stdout)
    rows = {row["user"]: row for row in found["rows"]}
    assert rows["nobody"]["jobs"] == rows[OTHER.pw_name]["jobs"] == 1000
    assert rows["nobody"]["cpu_hours"] == pytest.approx(1000 / 3600, rel=0.01)
    assert rows["nobody"]["share"] == pytest.approx(0.5, rel=0.01)
    assert rows["nobody"]["efficiency"] == pytest.approx(0.75, rel=0.01)
    assert rows["nobody"]["wait_median"] == pytest.approx(1.0, abs=0.01)
    assert {row["user"] for row in json.loads(node.nodectl("report", "--json", user=NOBODY).stdout)["rows"]} == {
        "nobody"
    }
    svg = tmp_path / "report.svg"
    assert node.nodectl("report", "-S", "now-2days", "--svg", str(svg)).returncode == 0
    tips = [one for one in ElementTree.parse(svg).iter() if one.tag.endswith("title")]  # noqa: S314  # ours
    assert any("nobody" in str(tip.text) for tip in tips)
    assert "CPU-hours of" in node.nodectl("report").stdout
    assert node.nodectl("report", "-S", "now+1day").stderr == (
        "nodectl: error: --starttime is not before --endtime, which is now at the latest\n"
    )


def test_what_the_history_has_not_taken_yet_is_told(node: Node) -> None:
    node.start()
    assert node.run("true").returncode == 0
    assert [row[0] for row in acct(node, "-Xo", "state")] == ["COMPLETED"]
    wait_until(lambda: not list(node.steps.iterdir()), "it is in the history")
    assert [row[0] for row in acct(node, "-Xo", "state")] == ["COMPLETED"]


def test_daemon_that_starts_forgets_what_is_older_than_its_days(node: Node) -> None:
    node.configure(history_days=1)
    store = Store(f"{node.values['state_dir']}/history.db", 10_000)
    ends = (1.0, time.time() - 3 * 86_400, time.time() - 60)
    store.add([Ended({"job": job, "step": 0, "uid": 0, "ended": end}, b"") for job, end in enumerate(ends, 1)])
    store.close()
    node.start()
    wait_until(lambda: len(node.call("List", ended=10)["steps"]) == 1, "the old ones are forgotten")  # type: ignore[arg-type]
    assert [step["job"] for step in node.call("List", ended=10)["steps"]] == [3]  # type: ignore[attr-defined]


def test_a_step_that_runs_is_told_with_what_its_cgroup_has_counted(node: Node) -> None:
    node.start()
    script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo on; exec sleep 60"
    with node.popen("sh", "-c", script, user=NOBODY) as step:
        assert step.stdout is not None
        step.stdout.readline()
        [[state, used, efficiency]] = acct(node, "-X", "-o", "state,totalcpu,efficiency")
        assert state == "RUNNING"
        assert used > "00:00.050"
        assert efficiency == ""
        rows = json.loads(node.nodectl("report", "--json").stdout)["rows"]
        assert [(row["jobs"], row["efficiency"]) for row in rows] == [(1, None)]
        step.terminate()


def test_many_running_steps_come_in_several_replies_and_once_each(node: Node) -> None:
    node.start()
    request = {"argv": ["sleep", "1000"], "environment": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "ntasks": 1}
    jobs = [int(str(node.call("Launch", request=request)["job"])) for _ in range(30)]
    first = node.call("Accounting", of="steps")
    assert len(first["records"]) == 25  # type: ignore[arg-type]
    assert first["next"] == f"running {jobs[24]}.0"
    assert [int(row[0]) for row in acct(node, "-X", "-o", "jobid")] == jobs
    for bad in ("running", "running x", "running 1", "running 1.x", "running 1.0 2", "running -1.0"):
        assert node.call("Accounting", of="steps", next=bad)["error"] == "org.nodectl.InvalidRequest"
    for job in jobs:
        node.call("Signal", job=job, step=0, signal=9)
