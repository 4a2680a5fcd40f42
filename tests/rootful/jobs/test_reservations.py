"""Job ids that are reserved, and GPUs that a reservation keeps."""

from __future__ import annotations

import os

import pytest

from nodectl.model.wire import framing
from rootful import raw
from rootful.node import NOBODY, Node, wait_until
from rootful.queued import queue_running, show, submit, wait_for

AT_A_TIME = 50


def test_nobody_takes_away_what_others_have_reserved_by_reserving_much(node: Node) -> None:
    job = node.call("Reserve")["job"]
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            with raw.connect(node) as sock:
                inbox = framing.Inbox(1 << 20)
                for _ in range(10_050 // AT_A_TIME):
                    sock.sendall(raw.call("org.nodectl.Reserve") * AT_A_TIME)
                    for _ in range(AT_A_TIME):
                        framing.receive(sock, inbox)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert node.call("Launch", request={**raw.REQUEST, "job": job}) == {"job": job, "step": 0}
    node.call("Wait", job=job, step=0)
    assert int(str(node.call("Reserve")["job"])) < 2000  # ids that were not used are not used up


@pytest.mark.parametrize(
    "words",
    [
        ("--cpu-bind=nonsense",), ("-mnonsense",), ("--secure=wild",), ("--uid=nosuchuser",), ("--mem=900T",),
        ("--io-max=/dev/nosuchdisk:rbps=1M",), ("--container-ns=nonsense",), ("-n70000",),
        ("--export=ALL,SLURM_HINT=wild",),
    ],
)  # fmt: skip
def test_what_is_refused_uses_up_no_job_id_though_plugins_have_to_know_it_before(node: Node, words: list[str]) -> None:
    said = node.scratch / "said"
    node.plugin("one", f"def slurm_spank_local_user_init(sp, ac, argv):\n    open({str(said)!r}, 'a').close()\n")
    node.plugstack("required one\n")
    assert node.run("true").returncode == 0
    said.unlink()
    job = node.last_job()
    refused = node.run(*words, "true")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1) or refused.returncode == 255, refused
    assert not said.exists()
    assert node.run("true").returncode == 0
    assert node.last_job() == job + 1


def test_what_a_running_job_has_not_uses_up_no_number_of_its_steps(node: Node) -> None:
    node.plugin("one", "def slurm_spank_local_user_init(sp, ac, argv):\n    pass\n")
    node.plugstack("required one\n")
    client = node.popen("--mem=8M", "sh", "-c", "echo on; exec sleep 1000")
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == "on\n"
        job = node.last_job()
        assert "more than the 8 MiB" in node.run(f"--jobid={job}", "--mem=1G", "true").stderr
        assert node.run(f"--jobid={job}", "true").returncode == 0
        assert node.record(job, 1)["state"] == "COMPLETED"
    finally:
        client.kill()
        client.communicate()


def test_a_reservation_keeps_gpus_whichever_they_are() -> None:
    gres = [f"Name=gpu File=/dev/{name}" for name in ("null", "zero")]
    with queue_running(gres=gres) as node:
        made = node.nodectl("reserve", "create", "course", "--duration=60", "--cores=1", "--gpus=1", "--users=daemon")
        assert (made.returncode, made.stderr) == (0, "")
        assert "1 core, 1 GPU" in node.nodectl("reserve").stdout
        second = submit(node, "true", "--gpus=2", "--time=1")
        wait_until(lambda: show(node, second)["reason"] == "Reservation", "it waits for the end of the reservation")
        assert "keeps 1" in node.nodectl("explain", str(second), user=NOBODY).stdout
        assert node.nodectl(
            "reserve", "create", "more", "--duration=60", "--cores=1", "--gpus=2", "--users=daemon"
        ).returncode
        assert node.nodectl("reserve", "delete", "course").returncode == 0
        wait_for(node, second, "COMPLETED")
