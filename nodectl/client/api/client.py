"""A client that blocks. It may be used by several threads at once; not on both sides of a fork."""

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
from nodectl.client.api.operations import Answer, Call, Operation, StepName, Turn, which
from nodectl.client.api.options import JobOptions, StepOptions
from nodectl.client.api.settings import Heard, Settings
from nodectl.client.api.streams import PIPE, Stream, Streams
from nodectl.client.command import Failed
from nodectl.client.session import Events, Session
from nodectl.model.step_number import step_word

T = TypeVar("T")
Path = str | os.PathLike[str]


class Client:
    """The service at `socket`, or of the configuration `config`; by default this machine's. With `private`, where none
    runs, root gets a node for as long as the client is open.
    """

    def __init__(self, socket: Path | None = None, config: Path | None = None, *, private: bool = False) -> None:
        self._settings = Settings(socket, config)
        self._idle: deque[Session] = deque()
        self._node: Session | None = None  # whose private node it is
        with errors.translated():
            first = conversation.connect(self._settings, private=private)
        self.path = first.path
        if first.private is not None:
            self._node, self._settings = first, Settings(first.path, None)
        else:
            self._idle.append(first)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections, and a private node when its steps have ended. Steps go on until they are closed."""
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
        """Runs a step and waits for its end, as subprocess.run. `timeout`: seconds, from when it has begun; then it is
        ended, and StepTimeout raised. An exception, as of a Ctrl-C, ends the step. Raises NodectlError.
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
        """Starts a step, when its turn has come: until then this blocks, and an exception gives the turn up. Raises
        NodectlError.
        """
        return self.launch(argv, options, stdin=stdin, stdout=stdout, stderr=stderr, env=env, turn=Turn())

    def launch(
        self, argv: Sequence[Path], options: Mapping[str, object], *, stdin: Stream = None, stdout: Stream = None,
        stderr: Stream = None, env: Mapping[str, str] | None = None, turn: Turn, exact: bool = False,
    ) -> "Step":  # fmt: skip
        """`start`, for who minds the turn; `exact`: in a job it takes no more than it needs."""
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
        """Waits until a step has ended, anybody's whom this user may see."""
        return values.result(self._ask("Wait", **which(step))["record"])

    def steps(self, *, ended: int = 0) -> list[values.StepInfo]:
        """Running steps, and the latest `ended` ones that have ended."""
        return self._do(operations.steps(ended))

    def step(self, step: StepName) -> values.StepInfo:
        """One step, running or ended."""
        return values.step_info(self._ask("Show", **which(step))["record"])

    def signal(self, step: StepName, number: int) -> None:
        """Signals a step's tasks; SIGKILL reaches everything that they started."""
        self._ask("Signal", **which(step), signal=int(number))

    def trace(self, step: StepName) -> list[values.TraceCall]:
        """The calls of its launch and its end."""
        return self._do(operations.trace(step))

    # Jobs.

    def submit(
        self, script: Path, arguments: Sequence[str] = (), *, text: str | None = None,
        env: Mapping[str, str] | None = None, **options: Unpack[JobOptions],
    ) -> int:  # fmt: skip
        """Queues a batch script, the file `script`, or `text` under that name: the job's number. Its lines #SBATCH
        count, what is given here goes before them.
        """
        return self._do(operations.submit(script, arguments, text, env, options))

    def wait_for_job(self, number: int) -> values.JobInfo:
        """Waits until a job, not an array, has ended."""
        return self._do(operations.wait_for_job(number))

    def jobs(
        self, jobs: Sequence[str] | None = None, *, users: Sequence[str] | None = None,
        states: Sequence[str] | None = None, names: Sequence[str] | None = None,
    ) -> list[values.JobInfo]:  # fmt: skip
        """The jobs that have not ended, those that start next first."""
        return self._do(operations.jobs({"jobs": jobs, "users": users, "states": states, "names": names}))

    def job(self, name: str | int) -> values.JobInfo:
        """One job, also for some time after its end."""
        return self._do(operations.job(name))

    def cancel(self, *names: str | int) -> list[str]:
        """Ends jobs, waiting or running, as 7 or "7_3"; the names of those that it found."""
        return self._do(operations.cancel(names))

    # What they have in common.

    def _ask(self, method: str, **parameters: object) -> values.Record:
        return self._do(operations.ask(method, **parameters))

    def _do(self, operation: Operation[T]) -> T:
        """Raises NodectlError."""
        with errors.translated():
            return conversation.drive(operation, self._answer)

    def _answer(self, call: Call) -> Answer:
        if call.pause:
            time.sleep(call.pause)
        session, keep = self._session(), False
        try:
            reply = session.call(call.method, call.fds, **call.parameters)
            keep = not session.followed  # who follows does not do so for ever
            return Answer(reply, session.take_descriptors())
        except Failed as failed:
            keep = errors.of_connection(failed).name != errors.NO_SERVICE
            raise
        finally:  # after a Ctrl-C the answer may come later: nobody is to take it for another's
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
    """A step of this program. It ends when it is closed, or this process ends. `stdin`, `stdout`, `stderr` are files
    where they were PIPE. For one thread at a time; `signal`, `cancel` and `kill` for any.
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
        """Of its tasks, as far as that was told while it was waited for."""
        return self._heard.pids

    @property
    def has_ended(self) -> bool:
        """Whether it has ended; nobody is asked how."""
        return self._listen(0.0)

    def fileno(self) -> int:
        """Readable when there is something to `poll` for."""
        return self._open().fd

    def poll(self) -> values.Result | None:
        """What became of it, None while it runs."""
        return self._result() if self._listen(0.0) else None

    def wait(self, timeout: float | None = None) -> values.Result:
        """What became of it, when it has ended. What it writes into a PIPE somebody has to read meanwhile. Raises
        StepTimeout; it runs on then.
        """
        if not self._listen(timeout):
            raise errors.StepTimeout(f"step {self.name} has not ended within {timeout:g} s")
        return self._result()

    def communicate(self, input: bytes | None = None, *, timeout: float | None = None) -> values.Result:  # noqa: A002
        """Gives it `input`, reads what it writes into PIPEs, and waits for its end. When time is up it is ended, and
        StepTimeout raised.
        """
        try:
            stdout, stderr = conversation.exchange(self, self._heard, self._open(), input, timeout)
        except errors.StepTimeout:
            self.cancel()
            raise
        return conversation.with_output(self.wait(), stdout, stderr)

    def close(self) -> None:
        """Closes its streams, and ends it if it runs."""
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                with contextlib.suppress(OSError):  # what was not taken by its reader
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
        """Reads events until its end, or until time is up; whether it has ended."""
        return conversation.listen(self._heard, self._open, timeout)

    def _result(self) -> values.Result:
        if self._heard.record is None:  # its runner is gone, and the service knows more
            self._heard.record = self._client.wait((self.job, self.step)).record
        return values.result(self._heard.record, self._heard.messages)
