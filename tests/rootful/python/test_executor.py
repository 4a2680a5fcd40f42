"""Functions in workers that are steps: what one of them does costs nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, CancelledError
from pathlib import Path

import pytest

from nodectl.client import Client, InvalidRequest, RemoteError, StepExecutor, StepTimeout, WorkerDied
from rootful.node import PATIENCE, Node, wait_until


def test_functions_run_in_steps_of_their_own_with_their_own_options(client: Client) -> None:
    with StepExecutor(2, client=client, job_name="pool") as pool:
        pids = set(pool.map(lambda _: os.getpid(), range(6)))
        assert os.getpid() not in pids
        assert len(pids) <= 2
        name = pool.options(job_name="other").submit(lambda: os.environ["SLURM_JOB_NAME"]).result()
        assert name == "other"
        assert pool.submit(lambda: os.environ["SLURM_JOB_NAME"]).result() == "pool"
        assert pool.submit(lambda: os.read(0, 1)).result() == b"", "nothing of the wire is a function's to read"
    assert client.steps() == []


def test_a_worker_that_dies_fails_its_own_function_alone(client: Client) -> None:
    with StepExecutor(2, client=client) as pool:
        dead, well = pool.submit(lambda: os._exit(3)), [pool.submit(abs, -n) for n in range(5)]
        with pytest.raises(
            WorkerDied, match="while it ran the function: FAILED: task 0 ended with exit code 3"
        ) as died:
            dead.result()
        assert isinstance(died.value, BrokenExecutor)
        assert [one.result() for one in well] == list(range(5))


def test_what_a_function_raises_arrives(client: Client) -> None:
    def wrong(error: BaseException) -> None:
        raise error

    class Unwieldy(Exception):
        """One that can be pickled, and not made again."""

        def __init__(self, one: str, other: str) -> None:
            super().__init__(one + other)

    def unwieldy() -> None:
        raise Unwieldy("a", "b")

    with StepExecutor(1, client=client) as pool:
        with pytest.raises(KeyError, match="x") as raised:
            pool.submit(wrong, KeyError("x")).result()
        assert "in wrong" in "".join(raised.value.__notes__)
        with pytest.raises(SystemExit):
            pool.submit(wrong, SystemExit(3)).result()
        with pytest.raises(RemoteError, match=r"Unwieldy: ab"):
            pool.submit(unwieldy).result()
        with pytest.raises(TypeError, match="pickle"):
            pool.submit(lambda: iter(open("/dev/null", "rb"))).result()  # noqa: SIM115
        with pytest.raises(InvalidRequest, match="cpu-bind"):
            pool.options(cpu_bind="nonsense").submit(abs, 1).result()
        assert pool.submit(abs, -1).result() == 1


def test_functions_are_cancelled_killed_and_timed_out(client: Client) -> None:
    with StepExecutor(1, client=client) as pool:
        endless, waiting = pool.submit(time.sleep, 1000), pool.submit(abs, 1)
        wait_until(endless.running, "it runs")
        assert waiting.cancel()
        assert not endless.cancel()
        assert endless.kill()
        with pytest.raises(WorkerDied, match="signal 9"):
            endless.result()
        assert not endless.kill()
        with pytest.raises(CancelledError):
            waiting.result()
        with pytest.raises(StepTimeout, match=r"more than 0\.1 s"):
            pool.options(timeout=0.1).submit(time.sleep, 1000).result()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(abs, 1)


def test_shutdown_takes_no_more_and_may_cancel_what_waits(client: Client) -> None:
    pool = StepExecutor(1, client=client)
    first, rest = pool.submit(os.getpid), [pool.submit(time.sleep, 1000) for _ in range(3)]
    first.result()
    wait_until(rest[0].running, "it runs")
    pool.shutdown(wait=False, cancel_futures=True)
    assert [one.cancelled() for one in rest] == [False, True, True]
    rest[0].kill()
    pool.shutdown()
    assert client.steps() == []


def test_idle_workers_do_not_hold_what_others_wait_for(narrow: Node) -> None:
    with Client(narrow.socket) as client, StepExecutor(3, client=client, idle_seconds=1000) as pool:
        results = [pool.submit(abs, -n) for n in range(4)]
        other = [pool.options(job_name=f"other{n}").submit(abs, -n) for n in range(3)]
        assert [one.result() for one in (*results, *other)] == [0, 1, 2, 3, 0, 1, 2]


def test_workers_end_when_nobody_needs_them(client: Client) -> None:
    with StepExecutor(1, client=client, idle_seconds=0.1) as pool:
        assert pool.submit(abs, -1).result() == 1
        wait_until(lambda: client.steps() == [], "the worker ends")
        assert pool.submit(abs, -2).result() == 2


def test_what_is_submitted_while_the_last_worker_ends_gets_another_one(client: Client) -> None:
    with StepExecutor(1, client=client, idle_seconds=0) as pool:
        assert [pool.submit(abs, -n).result(PATIENCE) for n in range(5)] == list(range(5))


def test_plain_pickle_finds_the_functions_of_the_main_program(served: Node, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['cloudpickle'] = None\n"
        "from nodectl.client import Client, StepExecutor\n"
        "def double(n): return 2 * n\n"
        "if __name__ == '__main__':\n"
        f"    with Client({str(served.socket)!r}) as node, StepExecutor(1, client=node) as pool:\n"
        "        print(*pool.map(double, range(3)))\n"
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-P", str(tmp_path / "program.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE,
    )
    assert (done.stdout, done.stderr) == ("0 2 4\n", "")


def test_in_a_job_workers_are_steps_of_it_side_by_side(served: Node, client: Client) -> None:
    program = served.scratch / "in_job.py"
    program.write_text(
        "import os\n"
        "from nodectl.client import StepExecutor\n"
        "def name(other):\n"
        "    return os.environ['SLURM_JOB_ID'] == other and os.environ['SLURM_STEP_ID'] in ('0', '1')\n"
        "if __name__ == '__main__':\n"
        "    with StepExecutor(2) as pool:\n"
        "        futures = [pool.submit(name, os.environ['SLURM_JOB_ID']) for _ in range(4)]\n"
        "        print({future.result() for future in futures})\n"
    )
    job = client.submit(
        "in_job", text=f"#!/bin/sh\nexec {sys.executable} -P {program}\n", ntasks=1, output=served.scratch / "out"
    )
    ended = client.wait_for_job(job)
    assert ((served.scratch / "out").read_text(), ended.exit_code) == ("{True}\n", 0)
