"""How commands of a bulk step end, and how the step does: time limits, leftovers, cancellation, suspension."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from rootful.bulk_client import BulkClient, shell
from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_until

_CONTROLLERS = tree.Group(tree.find_mount() + cgroup_of()).core.controllers
FOR_EVER = "sleep 1000 & sleep 1000"


def alive(node: Node, name: str) -> list[int]:
    return [pid for pid, called in node.processes() if called == name]


def test_a_command_whose_time_is_over_ends_with_all_that_it_started(served: Node) -> None:
    told = served.scratch / "told"
    client = BulkClient(served, 2).ready()
    script = f"trap 'echo term >> {told}' TERM; (trap '' TERM; sleep 1000) & wait; wait"
    timeout = 0.25
    while not told.exists():  # it may have been slower to set its trap
        timeout *= 2
        client.run(shell(1, script, timeout=timeout))
        client.until(lambda: 1 in client.ended, "it has ended")
        end = client.ended.pop(1)
        assert end["timed_out"] is True
    assert end["status"] == signal.SIGKILL
    client.run(shell(2, "sleep 1000", timeout=timeout), shell(3, "exit 3", timeout=1000))
    client.until(lambda: len(client.ended) == 2, "both have ended")
    wait_until(lambda: not alive(served, "sleep"), "what was killed has gone")
    assert (client.ended[2]["status"], client.ended[2]["timed_out"]) == (signal.SIGTERM, True)
    assert (client.ended[3]["status"], "timed_out" in client.ended[3]) == (3 << 8, False)
    client.call("NoMore")
    record = client.end()
    assert (record["bulk"]["failed"] - record["bulk"]["timed_out"], record["state"]) == (1, "FAILED")


def test_what_a_command_leaves_behind_is_gone_before_its_slot_has_the_next_one(served: Node) -> None:
    client = BulkClient(served, 1)
    left = served.scratch / "left"
    leaves = (
        f"(trap '' TERM HUP; exec setsid sh -c 'echo $$ > {left}; exec sleep 1000') & until [ -s {left} ]; do :; done"
    )
    record = client.all([shell(1, leaves), shell(2, f"kill -0 $(cat {left})")])
    assert [client.ended[seq]["status"] for seq in (1, 2)] == [0, 1 << 8]
    assert record["orphans"]["max_rss_kib"] > 0


def test_its_client_hears_whether_anything_of_a_command_is_left(served: Node) -> None:
    client = BulkClient(served, 1)
    client.all([*(shell(seq, "true") for seq in range(1, 6)), shell(6, "sleep 1000 & exit 0")])
    assert any(client.ended[seq].get("alone") for seq in range(1, 6))
    assert "alone" not in client.ended[6]


def test_a_command_has_a_cgroup_of_its_own_of_which_nothing_is_left_at_the_end(served: Node) -> None:
    client = BulkClient(served, 2).ready()
    where = served.scratch / "where"
    client.run(shell(1, "cat /proc/self/cgroup", stdout=str(where)))
    client.until(lambda: client.ended, "it has ended")
    group = where.read_text().rpartition("::")[2].strip()
    assert group.endswith("/step_0/user/task_0")
    client.call("NoMore")
    client.end()
    wait_until(lambda: not os.path.exists(f"{served.mount}{group}"), "its cgroup has gone")


def test_a_cgroup_serves_the_next_command_only_where_nothing_is_counted_in_it(served: Node) -> None:
    client = BulkClient(served, 1)
    files = [served.scratch / str(seq) for seq in range(3)]
    look = f"stat -c %i {served.mount}$(sed 's/.*:://' /proc/self/cgroup)"
    client.all([shell(seq, look, stdout=str(file)) for seq, file in enumerate(files)])
    assert len({file.read_text() for file in files}) == (3 if "memory" in _CONTROLLERS else 1)


def test_commands_begin_where_others_were_killed(served: Node) -> None:
    """The kernel kills whatever is born in a cgroup that was once killed as a whole."""
    client = BulkClient(served, 2).ready()
    client.run(shell(1, "kill -KILL $$"), shell(2, "sleep 1000 & exit 0"))
    client.until(lambda: len(client.ended) == 2, "both have ended")
    client.run(*(shell(seq, "true") for seq in range(3, 7)), shell(7, "exec sleep 1000"))
    client.until(lambda: len(client.ended) == 6 and 7 in client.begun, "all but one have ended")
    client.call("Signal", signal=int(signal.SIGKILL), forwarded=True)
    client.until(lambda: 7 in client.ended, "it was killed")
    client.run(*(shell(seq, "sleep 0.1") for seq in range(8, 12)))
    client.call("NoMore")
    client.end()
    killed = [seq for seq, end in client.ended.items() if end["status"]]
    assert sorted(killed) == [1, 7]


def test_commands_that_have_not_begun_are_withdrawn(served: Node) -> None:
    client = BulkClient(served, 1).ready()
    client.run(shell(1, "sleep 1000"), *(shell(seq, "true") for seq in range(2, 40)))
    client.until(lambda: 1 in client.begun, "the first one has begun")
    client.call("Withdraw")
    client.until(lambda: client.withdrawals, "they are withdrawn")
    assert client.withdrawn == list(range(2, 40))
    client.call("Withdraw")
    client.until(lambda: client.withdrawals == 2, "an empty list is told, too")
    client.run(shell(2, "true"))
    client.call("Signal", signal=int(signal.SIGUSR1), forwarded=True)
    client.call("NoMore")
    record = client.end()
    assert {seq: end["status"] for seq, end in client.ended.items()} == {1: signal.SIGUSR1, 2: 0}
    assert "cut_short" not in client.ended[1]
    assert (record["bulk"]["commands"], record["bulk"]["withdrawn"]) == (2, 38)


def test_a_step_that_is_ended_ends_its_commands_and_begins_no_other(served: Node) -> None:
    client = BulkClient(served, 2).ready()
    client.run(*(shell(seq, FOR_EVER) for seq in range(1, 20)))
    wait_until(lambda: len(alive(served, "sleep")) == 4, "two have begun")
    client.call("End")
    record = client.end()
    assert record["state"] == "CANCELLED"
    assert sorted(client.ended) == [1, 2]
    assert {(end["status"], end["cut_short"]) for end in client.ended.values()} == {(signal.SIGTERM, True)}
    assert client.withdrawn == list(range(3, 20))


def test_a_signal_of_its_user_reaches_all_of_a_commands_process_group(served: Node) -> None:
    """As a Ctrl-C at a terminal: a shell that alone gets it goes on when its program has ended."""
    client = BulkClient(served, 1).ready()
    client.run(shell(1, "sleep 1000; exit 5"))
    wait_until(lambda: alive(served, "sleep"), "it sleeps")
    client.call("Signal", signal=int(signal.SIGINT), forwarded=True)
    client.call("NoMore")
    assert client.end()["bulk"]["signalled"] == 1
    assert client.ended[1]["status"] == signal.SIGINT


def test_commands_after_a_kill_that_its_user_passed_on_are_waited_for(node: Node) -> None:
    """What would not have died by then was given up, and with it whatever ran in its place."""
    node.configure(unkillable_step_timeout=1)
    node.restart()
    client = BulkClient(node, 1).ready()
    client.run(shell(1, "sleep 1000"))
    wait_until(lambda: alive(node, "sleep"), "it sleeps")
    client.call("Signal", signal=int(signal.SIGKILL), forwarded=True)
    client.run(shell(2, "sleep 2"), shell(3, "true"))
    client.call("NoMore")
    record = client.end()
    assert {seq: end["status"] for seq, end in client.ended.items()} == {1: signal.SIGKILL, 2: 0, 3: 0}
    assert record["bulk"]["succeeded"] == 2


def test_accounting_sees_one_step_with_what_its_commands_used(served: Node) -> None:
    client = BulkClient(served, 2)
    burn = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    record = client.all(shell(seq, burn) for seq in range(6))
    used = sum(end["user"] + end["system"] for end in client.ended.values())
    assert abs(sum(task["user_seconds"] + task["system_seconds"] for task in record["tasks"]) - used) < 1e-4
    shown = served.nodectl("acct", "--json", "-j", str(client.job))
    (job,) = json.loads(shown.stdout)["jobs"]
    (step,) = job["steps"]
    assert (step["step"], step["name"], step["state"]) == (0, "bulk", "COMPLETED")


def test_a_client_that_goes_ends_its_step_and_leaves_nothing(served: Node) -> None:
    client = BulkClient(served, 2).ready()
    client.run(*(shell(seq, FOR_EVER) for seq in range(1, 20)))
    client.until(lambda: len(client.begun) == 2, "two have begun")
    client.close()
    served.assert_clean()
    record = served.record(client.job)
    assert (record["state"], record["reason"]) == ("CANCELLED", "the client that ran it went away")


# Sends a signal to its own process when a function of nodectl's has returned.
SIGNALLED = """
import importlib, os, sys
module, name, number = sys.argv[1:4]
there = importlib.import_module(module)
called = getattr(there, name)
def signalled(*words, **more):
    found = called(*words, **more)
    os.kill(os.getpid(), int(number))
    return found
setattr(there, name, signalled)
from nodectl.cli import main
sys.exit(main.main(sys.argv[4:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
@pytest.mark.parametrize("name", ["make", "sweep"])
def test_a_signal_before_the_request_leaves_no_directory_and_begins_no_step(
    served: Node, name: str, number: signal.Signals
) -> None:
    place = served.scratch / f"outputs-{name}-{number}"
    place.mkdir(0o700)
    os.chown(place, NOBODY.pw_uid, -1)
    before = served.call("List", ended=1000)["steps"]
    for values in ((":::", "0"), ("::::", "-")):  # which come at once, and never
        done = subprocess.Popen(
            [sys.executable, "-P", "-c", SIGNALLED, "nodectl.bulk.private_directory", name, str(int(number)),
             "--socket", str(served.socket), "bulk", "echo {}", *values],
            env=served.environment({"TMPDIR": str(place)}), cwd=served.scratch, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, user=NOBODY.pw_uid, group=NOBODY.pw_gid,
            extra_groups=[],
        )  # fmt: skip
        with done:
            assert done.stdin is not None
            if number == signal.SIGUSR1:
                done.stdin.close()
            assert done.wait(PATIENCE) in (-number, 128 + number)
            assert done.stdout is not None
            assert not done.stdout.read()
        assert not list(place.iterdir())
    assert served.call("List", ended=1000)["steps"] == before


def test_an_idle_step_ends_when_its_client_goes_or_its_time_is_over(served: Node) -> None:
    BulkClient(served, 2).ready().close()
    served.assert_clean()
    record = BulkClient(served, 2, time_limit=1).ready().end()
    assert record["state"] == "TIMEOUT"
    assert BulkClient(served, 2).all([])["state"] == "COMPLETED"


def test_another_user_can_neither_signal_nor_see_the_commands(served: Node) -> None:
    client = BulkClient(served, 1).ready()
    client.run(shell(1, "sleep 1000"))
    client.until(lambda: client.begun, "it has begun")
    assert served.nodectl("signal", "--signal=KILL", f"{client.job}.0", user=OTHER).returncode != 0
    assert served.nodectl("show", f"{client.job}.0", user=OTHER).returncode != 0
    shown = served.nodectl("show", str(client.job), user=NOBODY)
    assert "1 commands begun: 1 running" in shown.stdout
    assert served.nodectl("signal", "--signal=KILL", f"{client.job}.0", user=NOBODY).returncode == 0
    assert client.end()["state"] == "CANCELLED"


def test_a_suspended_step_begins_nothing_and_no_time_runs(served: Node) -> None:
    client = BulkClient(served, 1).ready()
    go = served.scratch / "go"
    client.run(shell(1, f"until [ -e {go} ]; do sleep 0.05; done", timeout=60), shell(2, "true"))
    client.until(lambda: client.begun, "it has begun")
    assert served.nodectl("suspend", str(client.job)).returncode == 0
    (pid,) = [pid for _, pid in client.begun.values()]
    go.touch()
    assert (client.shown()["bulk"]["running"], Path(f"/proc/{pid}").exists()) == (1, True)
    assert served.nodectl("resume", str(client.job)).returncode == 0
    client.call("NoMore")
    record = client.end()
    assert sorted(client.ended) == [1, 2]
    assert (record["state"], record["suspended_seconds"] > 0) == ("COMPLETED", True)


def test_a_bulk_step_outlives_the_service(node: Node) -> None:
    client = BulkClient(node, 2).ready()
    client.run(shell(1, f"until [ -e {node.scratch}/go ]; do sleep 0.05; done"))
    client.until(lambda: client.begun, "it has begun")
    node.restart(signal.SIGKILL)
    (node.scratch / "go").touch()
    client.run(*(shell(seq, "true") for seq in range(2, 30)))
    client.call("NoMore")
    assert client.end()["bulk"]["succeeded"] == 29
    wait_until(lambda: not node.leftovers(), "the new service has cleaned up")
    assert node.record(client.job)["bulk"]["succeeded"] == 29  # type: ignore[index]


def test_a_stepd_that_is_killed_takes_its_commands_along(served: Node) -> None:
    client = BulkClient(served, 2).ready()
    client.run(shell(1, FOR_EVER), shell(2, FOR_EVER), shell(3, "true"))
    client.until(lambda: len(client.begun) == 2, "they have begun")
    os.kill(client.stepd(), signal.SIGKILL)
    while client.read():
        pass
    client.close()
    served.assert_clean()
    assert (client.ended, client.record) == ({}, None)


@pytest.mark.skipif("memory" not in _CONTROLLERS, reason="cgroup2 has no memory controller here")
def test_a_command_that_runs_out_of_memory_fails_alone(served: Node) -> None:
    client = BulkClient(served, 1, mem=64)
    hog = "import sys; print(len(bytearray(200 << 20)))"
    record = client.all(
        [
            shell(1, "true"),
            {"seq": 2, "argv": ["/usr/bin/python3", "-Sc", hog], "stdout": "none", "stderr": "none"},
            shell(3, "true"),
        ]
    )
    assert [client.ended[seq].get("out_of_memory") for seq in (1, 2, 3)] == [None, True, None]
    assert (client.ended[2]["status"], client.ended[3]["status"]) == (signal.SIGKILL, 0)
    assert client.ended[2]["memory"] > client.ended[1]["memory"]
    assert (record["state"], record["bulk"]["out_of_memory"]) == ("OUT_OF_MEMORY", 1)
