"""What `nodectl metrics` makes of the service's numbers."""

from __future__ import annotations

import socket
import subprocess
import sys
from argparse import Namespace
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import nodectl
from nodectl.cli import metrics, node
from nodectl.client.command import Failed, GlobalOptions
from nodectl.model.wire import framing
from nodectl.service.daemon.history.counters import LAUNCH_BUCKETS, Counters
from nodectl.slurm.commands import machine_facts


def found() -> dict[str, object]:
    counters = Counters()
    for seconds in (0.001, 0.002, 0.03, 1000):
        counters.add({"state": "COMPLETED", "submitted": 5.0, "started": 5.0 + seconds, "cpu_seconds": [1.0, 0.5]})
    counters.add({"state": "FAILED", "submitted": 5.0, "started": None})
    node = {"name": "n", "state": "DRAINING", "cpus": 4, "cpus_used": 2, "memory": 100, "memory_used": 1,
            "gres": ["gpu:a100:0", "gpu:a100:1", "nic:0"], "gres_used": ["gpu:a100:1"]}  # fmt: skip
    return {"version": "1", "jobs": {"PENDING": 0, "RUNNING": 2}, "steps_running": 2, "nodes": [node],
            "resident": {"daemon": 5}, **counters.told()}  # fmt: skip


def samples(told: dict[str, object]) -> dict[tuple[str, str], float]:
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in metrics.families(told)
        for sample in family.samples
    }


def test_the_service_s_numbers_become_series() -> None:
    told = samples(found())
    assert told["nodectl_steps_ended_total", "COMPLETED"] == 4
    assert told["nodectl_steps_ended_total", "FAILED"] == 1
    assert told["nodectl_steps_cpu_seconds_total", "user"] == 4
    assert (told["nodectl_devices", "gpu"], told["nodectl_devices_used", "gpu"]) == (2, 1)
    assert (told["nodectl_devices", "nic"], told["nodectl_devices_used", "nic"]) == (1, 0)
    assert (told["nodectl_memory_bytes", "n"], told["nodectl_drained", "n"]) == (100 << 20, 1)
    assert (told["nodectl_jobs", "PENDING"], told["nodectl_jobs", "RUNNING"]) == (0, 2)


def test_a_bucket_holds_what_those_below_it_hold() -> None:
    told = samples(found())
    buckets = [told["nodectl_launch_seconds_bucket", str(bound)] for bound in LAUNCH_BUCKETS]
    assert buckets == [2, 2, 2, 2, *[3] * (len(LAUNCH_BUCKETS) - 4)]
    assert told["nodectl_launch_seconds_bucket", "+Inf"] == told["nodectl_launch_seconds_count", ""] == 4


def test_a_file_is_written_though_no_service_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = GlobalOptions()
    settings.socket = str(tmp_path / "nobody")
    arguments = Namespace(settings=settings, listen=None, file=str(tmp_path / "n.prom"))
    assert metrics.main(arguments) == 0
    assert "no service at" in capsys.readouterr().err
    (up,) = text_string_to_metric_families((tmp_path / "n.prom").read_text())
    assert [(sample.name, sample.value) for sample in up.samples] == [("nodectl_up", 0.0)]
    arguments.file = None
    with pytest.raises(Failed, match="no service at"):
        metrics.main(arguments)


def test_without_its_library_it_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop()); sys.modules['prometheus_client'] = None;"
        "from nodectl.cli.main import main; sys.exit(main(['metrics']))"
    )
    root = str(Path(str(nodectl.__file__)).parents[1])
    done = subprocess.run([sys.executable, "-IS", "-c", code, root], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs prometheus-client" in done.stderr
    assert done.stderr.endswith(" prometheus-client\n")


def test_shards_of_devices_are_counted_and_a_device_in_parts_is_one() -> None:
    shared = {"gres": ["gpu:0/shard:5/mem:80M", "gpu:1/shard:5/mem:80M"], "gres_used": ["gpu:0/shard:3/mem:48M"]}
    assert metrics._kinds([shared], "gres") == {"gpu": 2, "shard": 10}
    assert metrics._kinds([shared], "gres_used") == {"gpu": 1, "shard": 3}
    assert node._devices(shared) == "1/2, 3/10 shards"
    assert machine_facts.gres(shared) == "gpu:2,shard:10"
    assert machine_facts.gres(shared, "gres_used") == "shard:3,gpumem:48M"


def test_many_uids_that_ask_nothing_take_no_more_than_a_few_dozen_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """newuidmap(1) gives one user 65,536 of them."""
    uids = count(100_000)
    monkeypatch.setattr(framing, "peer_of", cache(lambda _: Namespace(uid=next(uids))))
    monkeypatch.setattr(metrics._Quiet, "timeout", None)
    clients = []
    with metrics._OnSocket(str(tmp_path / "socket")) as server:
        for _ in range(2 * metrics._MOST):
            ours, theirs = socket.socketpair()
            ours.settimeout(60)
            clients.append(ours)
            server.process_request(theirs, None)
        for silent in clients[: metrics._MOST]:
            assert silent.recv(1) == b""
        assert len(server._served) == metrics._MOST
        for client in clients:
            client.close()
