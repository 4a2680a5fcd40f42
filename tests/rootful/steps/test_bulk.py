"""A bulk step: thousands of commands as tasks of one step, each in the next free slot."""

from __future__ import annotations

import os
from pathlib import Path

from rootful.bulk_client import BulkClient, shell
from rootful.contained import contained
from rootful.node import NOBODY, Node


def test_every_command_runs_once_in_a_slot_with_its_own_number(served: Node) -> None:
    out = served.scratch / "out"
    out.mkdir()
    out.chmod(0o777)
    client = BulkClient(served, 2)
    script = "echo $SLURM_PROCID $SLURM_LOCALID $PARALLEL_SEQ $PARALLEL_JOBSLOT $(id -u)"
    record = client.all(shell(seq, script, stdout=f"{out}/{seq}") for seq in range(1, 201))
    assert sorted(client.numbers) == list(range(1, 201))
    for seq, end in client.ended.items():
        slot = end["slot"]
        words = (out / str(seq)).read_text().split()
        assert words == [str(seq), str(slot), str(seq), str(slot + 1), str(NOBODY.pw_uid)]
        assert (end["status"], "failed" in end) == (0, False)
        assert end["seconds"] >= 0
        assert end["memory"] > 0
        assert end["read"] > 0
    assert {end["slot"] for end in client.ended.values()} == {0, 1}
    assert (record["state"], record["exit_status"]) == ("COMPLETED", 0)
    assert {name: record["bulk"][name] for name in ("commands", "succeeded", "failed")} == {
        "commands": 200, "succeeded": 200, "failed": 0,
    }  # fmt: skip
    assert len(record["tasks"]) == 2
    assert len(record["bulk"]["slowest"]) == 5


def test_what_could_not_be_executed_is_told_and_why(served: Node) -> None:
    client = BulkClient(served, 2)
    record = client.all(
        [
            {"seq": 1, "argv": ["/no/such/program"]},
            {"seq": 2, "argv": ["/etc/passwd"]},
            {"seq": 3, "argv": ["true"], "stdout": "/no/such/directory/file"},
            shell(4, "exit 7"),
            shell(5, "kill -9 $$"),
        ]
    )
    ended = client.ended
    assert "No such file" in ended[1]["failed"]
    assert ended[1]["status"] == 2 << 8
    assert "Permission denied" in ended[2]["failed"]
    assert ended[2]["status"] == 13 << 8
    assert "/no/such/directory/file" in ended[3]["failed"]
    assert ended[4]["status"] == 7 << 8
    assert "failed" not in ended[4]
    assert ended[5]["status"] == 9
    assert record["state"] == "FAILED"
    assert record["reason"] == "5 of 5 commands failed"
    assert (record["bulk"]["failed"], record["bulk"]["not_executed"], record["bulk"]["signalled"]) == (5, 3, 1)
    assert [row["seq"] for row in sorted(record["bulk"]["failures"], key=lambda row: row["seq"])] == [1, 2, 3, 4, 5]
    assert client.messages == []


def test_output_of_both_kinds_in_one_file_and_the_clients_own(served: Node, tmp_path: Path) -> None:
    both, own = served.scratch / "both", tmp_path / "own"
    with own.open("wb") as output:
        client = BulkClient(served, 1, output=output.fileno())
    client.all(
        [
            {
                "seq": 1,
                "argv": ["sh", "-c", "echo one; echo two >&2; echo three"],
                "stdout": str(both),
                "stderr": str(both),
            },
            {"seq": 2, "argv": ["sh", "-c", "echo own"]},
            {"seq": 3, "argv": ["cat"], "stdin": str(both)},
            {"seq": 4, "argv": ["echo", "{slot}"], "slot_mark": "{slot}"},
        ]
    )
    assert both.read_text() == "one\ntwo\nthree\n"
    assert own.read_text() == "own\none\ntwo\nthree\n1\n"
    assert os.stat(both).st_uid == NOBODY.pw_uid


def test_each_slot_has_its_cpus_and_its_commands_are_bound_to_them(served: Node) -> None:
    out = served.scratch / "bound"
    out.mkdir()
    out.chmod(0o777)
    client = BulkClient(served, 2, layout={"cpu_bind": "map_cpu:0,1"})
    record = client.all(
        {"seq": seq, "argv": ["grep", "Cpus_allowed:", "/proc/self/status"], "stdout": f"{out}/{seq}"}
        for seq in range(20)
    )
    masks = [int(task["cpus"], 16) for task in record["tasks"]]
    assert masks == [1, 2]
    for seq, end in client.ended.items():
        allowed = int((out / str(seq)).read_text().split()[1].replace(",", ""), 16)
        assert allowed == masks[end["slot"]]


def test_commands_are_in_the_container_of_their_job_and_confined() -> None:
    with contained() as found:
        made = found.node.scratch / "made"
        client = BulkClient(found.node, 2, secure="strict", cwd=str(found.node.scratch))
        record = client.all(
            [
                shell(1, "touch /tmp/of-the-job && sleep 0.2"),
                shell(
                    2, "until [ -e /tmp/of-the-job ]; do sleep 0.05; done; [ $(stat -c %u /tmp/of-the-job) = $(id -u) ]"
                ),
                shell(3, "unshare -U true"),
                {"seq": 4, "argv": ["grep", "NoNewPrivs", "/proc/self/status"], "stdout": str(made)},
            ]
        )
        assert {seq: end["status"] == 0 for seq, end in client.ended.items()} == {1: True, 2: True, 3: False, 4: True}
        assert made.read_text().split() == ["NoNewPrivs:", "1"]
        assert record["bulk"]["failed"] == 1
        found.assert_gone()
    assert not Path("/tmp/of-the-job").exists()
