"""The blocking client. Several threads may share a client; parent and child of a fork may not."""

import contextlib
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, TypeVar, Unpack

from nodectl.client.api import conversation, errors, operations, values
from nodectl.client.api.control import Control
from nodectl.client.api.keywords import JobOptions, StepOptions
from nodectl.client.api.operations import MethodCall, Operation, Reply, StepName, Turn
from nodectl.client.api.settings import ApiSettings, Heard
from nodectl.client.api.streams import PIPE, Stream, Streams
from nodectl.client.command import Failed
from nodectl.client.session import Events, Session
from nodectl.model.step_number import step_word

T = TypeVar("T")
Path = str | os.PathLike[str]


class Client:
    """A connection to the service at `socket`, or of the configuration `config`; by default to this machine's.

    With `private`, root gets a private node for as long as the client is open, where no service runs.
    """

    def __init__(self, socket: Path | None = None, config: Path | None = None, *, private: bool = False) -> None:
        self._settings = ApiSettings(socket, config)
        self._idle: deque[Session] = deque()
        self._node: Session | None = None  # whose private node it is
        with errors.translated():
            first = conversation.connect(self._settings, private=private)
        self.path = first.path
        if first.private is not None:
            self._node, self._settings = first, ApiSettings(first.path, None)
        else:
            self._idle.append(first)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end a private node when all steps there have ended. Steps run on until closed."""
        while self._idle:
            self._idle.pop().close()
        if self._node is not None:
            node, self._node = self._node, None
            node.close()

    # Steps.

    def run(
        self, argv: Sequence[Path], *, input: bytes | None = None, stdin: Stream = None,  # noqa: A002  # subprocess's name
        stdout: Stream = None, stderr: Stream = None, capture_output: bool = False, check: bool = False,
        timeout: float | None = None, env: Mapping[str, str] | None = None, **options: Unpack[StepOptions],
    ) -> values.Result:  # fmt: skip
        """Run a step and wait for the end, like subprocess.run. Raises NodectlError.

        `timeout`: seconds from the start of the step; then the step is ended and StepTimeout raised. An exception, such
        as that of a Ctrl-C, ends the step.
        """
        if capture_output:
            stdout = stderr = PIPE
        if input is not None:
            stdin = PIPE
        step = self.start(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env, **options)
        try:
            result = step.communicate(input, timeout=timeout)
        finally:
            step.close()
        if check and result.exit_status:
            raise errors.StepFailed(result)
        return result

    def start(
        self, argv: Sequence[Path], *, stdin: Stream = None, stdout: Stream = None, stderr: Stream = None,
        env: Mapping[str, str] | None = None, **options: Unpack[StepOptions],
    ) -> "Step":  # fmt: skip
        """Start a step. Raises NodectlError.

        Block until the step's turn has come; an exception gives the turn up.
        """
        return self.launch(argv, options, stdin=stdin, stdout=stdout, stderr=stderr, env=env, turn=Turn())

    def launch(
        self, argv: Sequence[Path], options: Mapping[str, object], *, stdin: Stream = None, stdout: Stream = None,
        stderr: Stream = None, env: Mapping[str, str] | None = None, turn: Turn, exact: bool = False,
    ) -> "Step":  # fmt: skip
        """Start a step, with the caller's `turn`. With `exact`, a step in a job takes no more CPUs than needed."""
        with errors.translated():
            asked = operations.request_of_step(argv, env, options, self.path, exact=exact)
            with Streams(stdin, stdout, stderr, ntasks=int(str(asked.request["ntasks"]))) as streams:
                try:
                    job, number, events, calls = self._do(operations.launch(asked, streams, turn))
                except BaseException:
                    self._give_up(turn)
                    raise
                return Step(self, job, number, Events(events, calls), streams)

    def wait(self, step: StepName) -> values.Result:
        """Wait for the end of any step visible to this user, and return the result."""
        return values.result(self._do(operations.of_step("Wait", step))["record"])

    def steps(self, *, ended: int = 0) -> list[values.StepInfo]:
        """Return the running steps and the latest `ended` ended steps."""
        return self._do(operations.steps(ended))

    def step(self, step: StepName) -> values.StepInfo:
        """Return a running or ended step."""
        return values.step_info(self._do(operations.of_step("Show", step))["record"])

    def signal(self, step: StepName, number: int) -> None:
        """Send a signal to a step's tasks; SIGKILL reaches all processes started by the tasks."""
        self._do(operations.of_step("Signal", step, signal=int(number)))

    def trace(self, step: StepName) -> list[values.TraceCall]:
        """Return the calls of the step's launch and end."""
        return self._do(operations.trace(step))

    # Jobs.

    def submit(
        self, script: Path, arguments: Sequence[str] = (), *, text: str | None = None,
        env: Mapping[str, str] | None = None, **options: Unpack[JobOptions],
    ) -> int:  # fmt: skip
        """Queue a batch script and return the job's number.

        The script is the file `script`, or `text` under that name. Options given here override the script's #SBATCH
        lines.
        """
        return self._do(operations.submit(script, arguments, text, env, options))

    def wait_for_job(self, number: int) -> values.JobInfo:
        """Wait until a job, not an array, has ended, and return the job."""
        return self._do(operations.wait_for_job(number))

    def jobs(
        self, jobs: Sequence[str] | None = None, *, users: Sequence[str] | None = None,
        states: Sequence[str] | None = None, names: Sequence[str] | None = None,
    ) -> list[values.JobInfo]:  # fmt: skip
        """Return the jobs not yet ended, the next to start first."""
        return self._do(operations.jobs({"jobs": jobs, "users": users, "states": states, "names": names}))

    def job(self, name: str | int) -> values.JobInfo:
        """Return a job; the service remembers ended jobs for some time."""
        return self._do(operations.job(name))

    def cancel(self, *names: str | int) -> list[str]:
        """Cancel waiting or running jobs, named like 7 or "7_3", and return the names of the jobs found."""
        return self._do(operations.cancel(names))

    # What they have in common.

    def _do(self, operation: Operation[T]) -> T:
        """Run an operation and return the result. Raises NodectlError."""
        with errors.translated():
            return conversation.drive(operation, self._answer)

    def _answer(self, call: MethodCall) -> Reply:
        if call.pause:
            time.sleep(call.pause)
        session, keep = self._session(), False
        try:
            reply = session.call(call.method, call.fds, **call.parameters)
            keep = not session.followed  # a session follows only a few services
            return Reply(reply, session.take_descriptors())
        except Failed as failed:
            keep = errors.of_connection(failed).name != errors.NO_SERVICE
            raise
        finally:  # after a Ctrl-C the answer may come later: no other call may take it
            if keep:
                self._idle.append(session)
            else:
                session.close()

    def _session(self) -> Session:
        try:
            return self._idle.pop()
        except IndexError:
            return conversation.connect(self._settings)

    def _give_up(self, turn: Turn) -> None:
        if turn.job:
            with contextlib.suppress(errors.NodectlError):  # over already; else its lease ends
                self.cancel(turn.job)


class Step(Control):
    """A step started by this program, which ends when closed or when this process ends.

    `stdin`, `stdout`, `stderr` are files where the caller asked for PIPE. Only one thread at a time may use a step, but
    any thread may call `signal`, `cancel` and `kill`.
    """

    def __init__(self, client: Client, job: int, step: int, events: Events, streams: Streams) -> None:
        self._client = client
        self.job = job
        self.step = step
        self.name = f"{job}.{step_word(step)}"
        self._events: Events | None = events
        self._calling = threading.Lock()  # the descriptor is closed by none while another one writes to it
        self._heard = Heard()
        self.stdin: IO[bytes] | None = conversation.opened(streams, 0)
        self.stdout: IO[bytes] | None = conversation.opened(streams, 1)
        self.stderr: IO[bytes] | None = conversation.opened(streams, 2)

    def __enter__(self) -> "Step":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_events", None) is not None:
            if not self._heard.over:
                warnings.warn(f"step {self.name} was not closed, and is ended", ResourceWarning, 2, self)
            self.close()

    @property
    def pids(self) -> Sequence[int]:
        """The pids of the step's tasks, from the events read so far."""
        return self._heard.pids

    @property
    def has_ended(self) -> bool:
        """Whether the step has ended. The service is not asked for the result."""
        return self._listen(0.0)

    def fileno(self) -> int:
        """Return a descriptor which becomes readable when `poll` may have something to report."""
        return self._open().fd

    def poll(self) -> values.Result | None:
        """Return the result of the step, None while the step runs."""
        return self._result() if self._listen(0.0) else None

    def wait(self, timeout: float | None = None) -> values.Result:
        """Wait until the step has ended, and return the result. Raises StepTimeout; the step runs on then.

        The caller has to read the step's PIPEs meanwhile, or the step may block.
        """
        if not self._listen(timeout):
            raise errors.StepTimeout(f"step {self.name} has not ended within {timeout:g} s")
        return self._result()

    def communicate(self, input: bytes | None = None, *, timeout: float | None = None) -> values.Result:  # noqa: A002
        """Write `input` to the step, read the PIPEs, and wait for the end.

        When time is up, end the step and raise StepTimeout.
        """
        try:
            stdout, stderr = conversation.exchange(self, self._heard, self._open(), input, timeout)
        except errors.StepTimeout:
            self.cancel()
            raise
        return conversation.with_output(self.wait(), stdout, stderr)

    def close(self) -> None:
        """Close the step's streams, and end the step if still running."""
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                with contextlib.suppress(OSError):  # flushing fails if the reader has gone
                    file.close()
        with self._calling:
            events, self._events = self._events, None
            if events is not None:
                events.close()

    def _open(self) -> Events:
        if self._events is None:
            raise ValueError(f"step {self.name} is closed")
        return self._events

    def _call(self, method: str, **parameters: object) -> None:
        with self._calling, contextlib.suppress(OSError):  # it has ended
            if self._events is not None:
                self._events.call(method, **parameters)

    def _listen(self, timeout: float | None) -> bool:
        """Read events until the step's end or the timeout; return True if the step has ended."""
        return conversation.listen(self._heard, self._open, timeout)

    def _result(self) -> values.Result:
        if self._heard.record is None:  # its runner is gone, and the service knows more
            self._heard.record = self._client.wait((self.job, self.step)).record
        return values.result(self._heard.record, self._heard.messages)
