"""A live step, begun and not yet recorded as ended: the daemon's data on the step and the connection to the stepd."""

import _socket
import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from signal import SIGKILL

from nodectl import messages
from nodectl.launch.stepd import plugin_output
from nodectl.launch.streams.filename import files_of
from nodectl.model.states import CONFIGURING, FAILED, NODE_FAIL, RUNNING, SUSPENDED
from nodectl.model.step import Step
from nodectl.model.step_number import BATCH
from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import STEP, Refused
from nodectl.plugin_host.node_plugins import NodePlugins
from nodectl.plugin_host.tracing import progress
from nodectl.service.daemon.steps.files import StepFiles
from nodectl.service.daemon.steps.process_usage import spent_by_children

_CROWDED_PAUSE = 0.05
_END_AGAIN = 1.0


class LiveStep:
    """A running step.

    In the event loop `on_ending(live)` is called when the stepd says that it is about to kill the step, and
    `on_end(live)` once, when the stepd has closed its end of the connection.
    """

    def __init__(
        self, step: Step, files: StepFiles, on_end: Callable[["LiveStep"], None],
        on_ending: Callable[["LiveStep"], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.step = step
        self.files = files
        self.pid = 0
        self.spent_before = 0.0  # CPU seconds of earlier steps of the runner; for a step without a cgroup
        self.size = 0  # bytes of its files, which count against its user
        self.failure = ""
        self.last_words = ""  # what the stepd died of
        self.last_record: Mapping[str, object] | None = None  # from the stepd's last event
        self.ended: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        self._on_end = on_end
        self._on_ending = on_ending
        self._link: _socket.socket | None = None
        self._inbox = framing.Inbox(8 << 20)
        self._out = bytearray()
        self._is_full = False  # the link is full: `_out` waits for room
        self._replies: list[asyncio.Future[Mapping[str, object]]] = []
        self.commands: Mapping[str, int] = {}  # counts of a bulk step
        self.progress_fd = -1
        self.views_fd = -1  # on which the step will be seen, until the stepd has it
        self.in_prolog = False
        self.prolog_failed = ""  # how
        self.interrupted = False  # the daemon ended during the prolog
        self.suspended = False
        self.suspended_by_owner = False  # if suspended
        self.needs_epilog = False
        self.container_deleted = False  # the container of the job, which ends with this step
        self.reserved = False  # task plugins may hold something for its job
        self.updating = asyncio.Lock()
        self.status_task: asyncio.Task[Mapping[str, object] | None] | None = None  # (daemon/steps/status_query.py)
        self.cancelled = ""  # why the step will not begin, if cancelled in its prolog
        self._pidfd = -1
        self._state = NODE_FAIL  # the state, if the stepd leaves no record

    @property
    def key(self) -> tuple[int, int]:
        """The step's key, (job, step)."""
        return self.step.job_id, self.step.step_id

    def connect(self, link: _socket.socket) -> None:
        """Take the connection to the stepd. The connection's close means the step's end."""
        link.setblocking(False)
        self._link = link
        asyncio.get_running_loop().add_reader(link.fileno(), self._read)

    def listen_for_viewers(self) -> None:
        """Let viewers of the step's streams connect. Raises OSError."""
        if self.step.has_viewers:
            self.views_fd = self.files.listen_for_viewers()

    def take_views(self) -> list[int]:
        """Return the viewers' socket for the stepd; an empty list for a step without viewers."""
        fd, self.views_fd = self.views_fd, -1
        return [fd] if fd >= 0 else []

    def reach(self, lost: Callable[[], None]) -> None:
        """Connect to a running stepd, and try again until that is possible. Call `lost` if the stepd is dead."""
        if self.ended.done():
            return
        try:
            gone = self._pidfd >= 0 and not framing.runs(self._pidfd)
            link = None if gone else self.files.connect()
        except OSError:  # no memory or descriptor is left, or others crowd the socket: the stepd may well live
            asyncio.get_running_loop().call_later(_CROWDED_PAUSE, self.reach, lost)
            return
        if link is None:
            lost()
            return
        self.connect(link)
        self._out += framing.encode({"method": f"{STEP}.Attach", "parameters": {}, "more": True})
        self._flush()
        if self._pidfd < 0:
            self.watch(framing.peer_of(link).pid)
        else:
            asyncio.get_running_loop().add_reader(self._pidfd, self._finish)

    def watch(self, pid: int, *, has_taken_it: bool = True) -> None:
        """Watch the stepd by a pidfd, because a plugin's child may hold the connection open after the stepd's end.

        A warm runner may end before it has taken the step (`has_taken_it` is False). Then only the connection is
        watched: it is in the order, which another stepd gets after the runner's end. No plugin has a child there.
        """
        self._close_pidfd()
        self.pid = pid
        # A bulk step's runner serves no other step, so all its time is the step's. This daemon may be a later one.
        if not self.step.cgroup and not self.step.bulk:
            self.spent_before = spent_by_children(pid)
        if not has_taken_it:
            return
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            asyncio.get_running_loop().call_soon(self._finish)
            return
        except OSError:
            return  # no descriptor is left: the end of the connection has to do
        asyncio.get_running_loop().add_reader(self._pidfd, self._finish)

    def fail(self, why: str, state: str = FAILED) -> None:
        """End the step, which has no stepd and will have none."""
        self.failure = why
        self._state = state
        self._finish()

    def _read(self) -> None:
        assert self._link is not None  # noqa: S101  # the reader is removed with it
        try:
            alive = self._inbox.receive(self._link)
            while (message := self._inbox.next()) is not None:
                self._take(message)
            if not alive:
                self._unlink()  # nothing is left to read
        except BlockingIOError:
            return
        except (OSError, framing.BrokenWire):
            alive = False
        if not alive:
            self._finish()

    def _take(self, message: Mapping[str, object]) -> None:
        """Take a reply or an event: the start of termination, counts of commands, the final record, or last words.

        The last event carries the record, because the disk may have had no room for it.
        """
        parameters: Mapping[str, object] = message.get("parameters") or {}  # type: ignore[assignment]
        event: Mapping[str, object] | None = parameters.get("event")  # type: ignore[assignment]
        if event is not None:
            self.last_record = event.get("record") or self.last_record  # type: ignore[assignment]
            if event.get("event") == "ending":
                self._on_ending(self)
            elif event.get("event") == "died":
                self.last_words = str(event["why"])
            elif event.get("event") == "commands":
                self.commands = event["counts"]  # type: ignore[assignment]  # the stepd's own
        elif self._replies and not (asked := self._replies.pop(0)).done():
            asked.set_result(message)

    def _finish(self) -> None:
        """Finish the step, because the stepd has ended or closed the connection. Called for each of both events."""
        if self.ended.done():
            return
        self._read_the_rest()
        self._unlink()
        self._unwatch()
        for waiting in self._replies:
            waiting.cancel()
        self._replies.clear()
        try:
            self._on_end(self)
        except Exception as error:
            asyncio.get_running_loop().call_later(_END_AGAIN, self._finish)
            if not isinstance(error, OSError):
                raise
            told = f"step {self.step}: note its end: {error}; this is tried again"  # perhaps no descriptor is left
            messages.tell("step-end-late", told, job=self.step.job_id, step=str(self.step))

    def _read_the_rest(self) -> None:
        """Read the stepd's last messages, in case the stepd's end was noticed first."""
        if self._link is None:
            return
        with contextlib.suppress(OSError, framing.BrokenWire):
            while self._inbox.receive(self._link):
                while (message := self._inbox.next()) is not None:
                    self._take(message)

    def _unlink(self) -> None:
        if self._link is not None:
            asyncio.get_running_loop().remove_reader(self._link.fileno())
            self._wait_for_room(on=False)
            self._link.close()
            self._link = None
        self._out.clear()

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)

    def _close_pidfd(self) -> None:
        self._unwatch()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _flush(self) -> None:
        assert self._link is not None  # noqa: S101  # the writer is removed with it
        try:
            while self._out:
                del self._out[: self._link.send(self._out, _socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            self._wait_for_room(on=True)
            return
        except OSError:
            self._out.clear()  # the stepd has gone; the reader will notice
        self._wait_for_room(on=False)

    def _wait_for_room(self, *, on: bool) -> None:
        if on == self._is_full or self._link is None:
            return
        self._is_full = on
        loop, fd = asyncio.get_running_loop(), self._link.fileno()
        if on:
            loop.add_writer(fd, self._flush)
        else:
            loop.remove_writer(fd)

    async def ask(
        self, method: str, parameters: Mapping[str, object], patience: float | None = None
    ) -> Mapping[str, object] | None:
        """Call a method of the stepd. Return the reply message, or None if the stepd has gone meanwhile.

        A stepd in a plugin's hook does not answer: after `patience` seconds the result is None, too.
        """
        if self._link is None:
            return None
        answer: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()
        self._replies.append(answer)
        self._out += framing.encode({"method": f"{STEP}.{method}", "parameters": parameters})
        self._flush()
        try:
            return await asyncio.wait_for(answer, patience)
        except (TimeoutError, asyncio.CancelledError):
            return None

    async def order(self, method: str, parameters: Mapping[str, object]) -> None:
        """Call a method of the stepd, and pass the stepd's refusal on. Raises Refused."""
        if method == "Signal" and parameters["signal"] == SIGKILL and not self.step.bulk:
            self._on_ending(self)  # the stepd kills at once; its event would come too late
        answer = await self.ask(method, parameters)
        if answer is None:
            raise Refused("NoSuchStep", f"step {self.step} has just ended")
        if "error" in answer:
            refusal: Mapping[str, object] = answer.get("parameters", {})  # type: ignore[assignment]  # the stepd's own
            raise Refused(str(answer["error"]).rpartition(".")[2], str(refusal.get("reason", "")))

    def summary(self) -> dict[str, object]:
        """Return the daemon's knowledge of the step, without asking the stepd."""
        return {
            **self.step.facts(),
            **files_of(self.step),
            "state": CONFIGURING if self.in_prolog else SUSPENDED if self.suspended else RUNNING,
            "reason": "",
            "pid": self.pid,
            "cgroup": self.step.cgroup,
            "time_limit": self.step.time_limit,
            **({"commands": self.commands} if self.commands else {}),
        }

    def where_it_died(self, plugins: NodePlugins) -> str:
        """Return the stepd's activity at the time of death, from the progress file; "" if unknown."""
        if self.progress_fd < 0:
            return ""
        hook, place = progress.stepd_place(self.progress_fd)
        if hook is None:
            return ""
        if hook.process == "task":
            return " while its tasks ran"
        plugin = plugins.name(hook.kind, place)
        if hook.kind == "job_container" and self.step.container_plugin != plugins.container.type:
            plugin = self.step.container_plugin
        if hook.kind == "spank" and place < len(self.step.stack):
            plugin = os.path.basename(self.step.stack[place].path).removesuffix(".py")
        return f" in {hook.call}" + (f" of plugin {plugin}" if plugin else "")

    def log_plugin_output(self) -> None:
        """Log the plugins' output not passed on by the stepd. Call this only after the stepd's death.

        It empties the file, which a living stepd goes on reading.
        """
        plugin_output.log_rest(self.files.stem)

    def death_record(self, why: str) -> dict[str, object]:
        """Return the record of a step without a record of the stepd. Also noted for a running step. Changes nothing."""
        return {
            **self.step.facts(),
            **files_of(self.step),
            "state": self._state,
            "reason": why,
            "exit_status": 1,
            "started": None,
            "ended": time.time(),
            "tasks": [],
            **({"prolog": self.prolog_failed} if self.prolog_failed else {}),
            **({"interrupted": True} if self.interrupted else {}),
            **({"never_began": True} if self._never_began() else {}),
        }

    def _never_began(self) -> bool:
        """Return True for a script of which nothing has run."""
        return self.step.step_id == BATCH and self.progress_fd >= 0 and not progress.has_task(self.progress_fd)

    def close(self) -> None:
        """Close all descriptors of the daemon for the step."""
        self._close_pidfd()
        if self.progress_fd >= 0:
            os.close(self.progress_fd)
            self.progress_fd = -1
        framing.close(self.take_views())
        self._unlink()
