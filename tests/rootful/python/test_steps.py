"""Steps of a Python program: their streams, their ends, and what becomes of them without it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys

import pytest

from nodectl.client import (
    PIPE,
    STDOUT,
    AsyncClient,
    Busy,
    Client,
    InvalidRequest,
    NodectlError,
    NoService,
    NotFound,
    StepFailed,
    StepTimeout,
)
from nodectl.client.api.operations import MethodCall, Reply
from rootful.node import NOBODY, PATIENCE, Node, wait_until

ENDLESS = ["sleep", "1000"]
PROGRAM = """
import sys
from nodectl.client import PIPE, Client
node = Client(sys.argv[1])
step = node.start(["sleep", "1000"])
print(step.name, flush=True)
step.wait()
"""


def test_streams_pass_what_they_are_given(client: Client) -> None:
    text = os.urandom(300_000)
    done = client.run(["sh", "-c", "cat; echo wrong >&2"], input=text, capture_output=True)
    assert (done.stdout, done.stderr, done.exit_status, done.state) == (text, b"wrong\n", 0, "COMPLETED")
    both = client.run(["sh", "-c", "echo out; echo wrong >&2"], stdout=PIPE, stderr=STDOUT, ntasks=2, label=True)
    assert sorted(both.text.splitlines()) == ["0: out", "0: wrong", "1: out", "1: wrong"]
    reader, writer = os.pipe()
    with open(reader, "rb") as out:
        client.run(["echo", "descriptor"], stdout=writer)
        os.close(writer)
        assert out.read() == b"descriptor\n"


def test_a_file_is_opened_by_the_step_as_its_user(served: Node, client: Client) -> None:
    client.run(["id", "-un"], uid="nobody", chdir=served.scratch, stdout="who-%t", ntasks=2, check=True)
    assert [(served.scratch / f"who-{task}").read_text() for task in range(2)] == ["nobody\n"] * 2
    assert (served.scratch / "who-0").stat().st_uid == NOBODY.pw_uid


def test_input_that_nobody_reads_and_output_that_nobody_stops_do_no_harm(client: Client) -> None:
    assert client.run(["true"], input=bytes(1 << 20)).exit_status == 0
    with pytest.raises(StepTimeout, match=r"has not ended within 0\.5 s"):
        client.run(["yes"], capture_output=True, timeout=0.5)


def test_failures_say_what_happened_and_what_to_do(client: Client) -> None:
    with pytest.raises(StepFailed, match="task 0 ended with exit code 7") as failed:
        client.run(["sh", "-c", "exit 7"], check=True)
    assert [task.exit_code for task in failed.value.result.tasks] == [7]
    with pytest.raises(InvalidRequest, match="cpu-bind") as refused:
        client.run(["true"], cpu_bind="nonsense")
    assert "nodectl run --help" in refused.value.advice
    with pytest.raises(NotFound):
        client.step("999999.0")
    missing = client.run(["/nonexistent"])
    assert missing.exit_status == 2
    assert any("/nonexistent" in line for line in missing.messages)
    with pytest.raises(NoService, match="no service at /nonexistent"):
        Client("/nonexistent")


def test_a_step_ends_with_the_program_that_started_it(served: Node) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, str(served.socket)], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        name = program.stdout.readline().strip()
        assert name, "the step has begun"
        program.kill()
    with Client(served.socket) as client:
        assert client.wait(name).state == "CANCELLED"


def test_a_client_outlives_its_service(node: Node) -> None:
    with Client(node.socket) as client, client.start(ENDLESS) as step:
        for _ in range(6):
            node.restart()
            assert [one.name for one in client.steps()] == [step.name]
        step.kill()
        assert step.wait().tasks[0].exit_code == -signal.SIGKILL
        assert client.wait(step.name).name == step.name


def test_who_stops_waiting_for_a_turn_leaves_the_queue(narrow: Node) -> None:
    with Client(narrow.socket) as client, client.start(ENDLESS):
        with pytest.raises(Busy):
            client.run(["true"], immediate=True)
        assert [job.state for job in client.jobs()] == ["RUNNING"]

        async def give_up() -> None:
            async with AsyncClient(narrow.socket) as other:
                waiting = asyncio.create_task(other.run(["true"]))
                while [job.state for job in await other.jobs()] != ["RUNNING", "PENDING"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert [job.state for job in await other.jobs()] == ["RUNNING"]

        asyncio.run(give_up())


def test_who_is_cancelled_at_any_moment_leaves_no_job(narrow: Node) -> None:
    """Also between the request for a job and the reply, which names the job."""

    async def give_up(turns: int) -> None:
        async with AsyncClient(narrow.socket) as client:
            waiting = asyncio.create_task(client.run(["true"]))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert [job.state for job in await client.jobs()] == ["RUNNING"], turns

    with Client(narrow.socket) as client, client.start(ENDLESS):
        for turns in range(1, 100):
            asyncio.run(give_up(turns))


@pytest.mark.parametrize("late", [False, True])
def test_a_ctrl_c_during_the_request_for_a_job_leaves_no_job(
    narrow: Node, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    """While the service works, or when the reply has come and the client has not read the job's number in it yet."""
    with Client(narrow.socket) as other, other.start(ENDLESS), Client(narrow.socket) as client:
        answer = client._answer

        def interrupted(call: MethodCall) -> Reply:
            reply = answer(call) if late or call.method != "Allocate" else None
            if call.method == "Allocate":
                signal.raise_signal(signal.SIGINT)
            return reply or answer(call)

        monkeypatch.setattr(client, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.run(["true"])
        assert [job.state for job in other.jobs()] == ["RUNNING"]


def test_a_cancelled_run_ends_its_step_and_an_abandoned_wait_does_not(served: Node) -> None:
    async def play() -> None:
        async with AsyncClient(served.socket) as client:
            running_ = asyncio.create_task(client.run(ENDLESS, capture_output=True))
            while not (steps := await client.steps()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            running_.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running_
            assert (await client.wait(steps[0].name)).state == "CANCELLED"

            async with await client.start(["sh", "-c", "read line; echo got $line"], stdin=PIPE, stdout=PIPE) as step:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(step.wait(), 0.1)
                assert step.stdin is not None
                assert step.stdout is not None
                step.stdin.write(b"this\n")
                assert await step.stdout.readline() == b"got this\n"
                assert (await step.wait()).exit_status == 0

    asyncio.run(play())


def test_a_batch_job_is_submitted_awaited_and_cancelled(served: Node, client: Client) -> None:
    script = served.scratch / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --ntasks=2 --output=/dev/null\nexit $1\n")
    job = client.submit(script, ["4"], job_name="named")
    ended = client.wait_for_job(job)
    assert (ended.name, ended.exit_code, ended.is_over, ended.record["tasks"]) == ("named", 4, True, 2)
    held = client.submit("held", text="#!/bin/sh\n", hold=True)
    assert [one.job for one in client.jobs(states=["PENDING"])] == [held]
    assert client.cancel(held) == [str(held)]
    assert client.wait_for_job(held).state == "CANCELLED"
    with pytest.raises(NodectlError, match="empty, not a batch script"):
        client.submit("nothing", text="")


def test_the_step_of_a_task_of_an_array_is_named_as_on_the_command_line(client: Client) -> None:
    array = client.submit("named", text="#!/bin/sh\n", array="2-3", output="/dev/null")
    for task in (2, 3):
        ended = client.wait(f"{array}_{task}.batch")
        assert ended.exit_status == 0
        record = client.step(f"{array}_{task}.batch").record
        assert (record["job"], record["step"]) == (client.job(f"{array}_{task}").job, ended.record["step"])
        assert client.trace(f"{array}_{task}.batch")

    async def ask() -> object:
        async with AsyncClient(client.path) as asking:
            return (await asking.step(f"{array}_2.batch")).record["state"]

    assert asyncio.run(ask()) == "COMPLETED"
    with pytest.raises(NotFound):
        client.step(f"{array}_7.batch")
    with pytest.raises(ValueError, match="one task at a time"):
        client.step(f"{array}_[2-3].batch")
    waiting = client.submit("held", text="#!/bin/sh\n", array="1-2", hold=True)
    with pytest.raises(NotFound, match=f"job {waiting}_1 waits"):
        client.step(f"{waiting}_1.batch")
    client.cancel(waiting)


def test_a_users_client_sees_what_its_user_may(served: Node, client: Client) -> None:
    code = (
        "import sys; from nodectl.client import *; n = Client(sys.argv[1]); print(n.steps()); n.signal(sys.argv[2], 9)"
    )
    with client.start(ENDLESS) as step:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, str(served.socket), step.name],
            capture_output=True, text=True, check=False, timeout=PATIENCE, user=NOBODY.pw_uid, group=NOBODY.pw_gid,
            extra_groups=[],
        )  # fmt: skip
        assert done.stdout == "[]\n"
        assert "NotPermitted" in done.stderr or "NotFound" in done.stderr
        assert step.poll() is None
        step.cancel()
        wait_until(lambda: step.poll() is not None, "the step ends")


def test_a_step_of_asyncio_that_its_program_forgets_ends(client: Client) -> None:
    async def play() -> None:
        async with AsyncClient(client.path) as other:
            steps = [await other.start(ENDLESS, stdout=PIPE)]
            name = steps[0].name
            with pytest.warns(ResourceWarning, match=f"step {name} was not closed"):
                steps.clear()
            assert (await other.wait(name)).state == "CANCELLED"

    asyncio.run(play())


def test_a_step_of_asyncio_for_which_a_task_waits_is_not_forgotten(client: Client) -> None:
    async def play() -> None:
        async with AsyncClient(client.path) as other:
            over = asyncio.Event()

            async def wait() -> None:
                assert (await other.run(["cat"], stdin=PIPE, capture_output=True)).state == "COMPLETED"
                over.set()

            def start() -> None:
                asyncio.ensure_future(wait())  # noqa: RUF006  # nobody keeps it

            start()
            while not over.is_set():
                gc.collect()
                await asyncio.sleep(0.01)

    asyncio.run(play())
