"""The stepd's side of a step's MPI server, a process of the user's. Runs in the stepd, as root.

Only the server, which serves the step's MPI plugin, reads what tasks send to it. The stepd starts the server before the
tasks, hands each task its socket, believes nothing but the words of `nodectl/model/mpi_server.py`, and ends the server
with the step.
"""

import _socket
import os
import time

from nodectl.kernel import _kernel, children, operations, signals
from nodectl.kernel.closing import pass_on
from nodectl.launch.cgroup import tree
from nodectl.launch.confine.confinement import Confinement
from nodectl.launch.stepd import user_helpers
from nodectl.launch.stepd.run import LaunchFailed, NoMpi
from nodectl.launch.stepd.start import fork_beside
from nodectl.launch.task import users_process
from nodectl.model import launch_order
from nodectl.model.states import FAILED, OUT_OF_MEMORY, RUNNING
from nodectl.plugin_host.loader import PluginRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.launch.stepd.reaper import Reaper
    from nodectl.launch.stepd.run import Run
    from nodectl.launch.task.child import Child
    from nodectl.model.mpi_server import MpiServer
    from nodectl.model.step import Task

    Become = Callable[..., bool]

_DATA, _CORE = 2, 4  # RLIMIT_*
_MEMORY = 512 << 20  # bytes of data that a server may have
_LONGEST_WORD = 8192
_MOST_WORDS, _WORDS_OF_TASK = 1 << 17, 1 << 12  # bytes of words that a server may send: in all, and for each task
_BEGIN_SECONDS = 30.0  # that a server may take until tasks can begin
_END_SECONDS = 5.0
_SLOW = 0.5
_PREFIXES = ("PMIX_", "PMI_", "OMPI_", "PRTE_")
# Words of the server (`nodectl/model/mpi_server.py`) that end the step, or of which its user is told once.
_ENDING = {
    "apart": "its MPI server has lost those of its other nodes",
    "bad": "task {} sent its MPI server what is no message",
    "crowded": "its tasks store more with its MPI servers than there is room for",
    "deserted": "all tasks on its node {} have left MPI and others wait for them",
}
_TOLD = {
    "full": "task {} stored more with its MPI server than there is room for",
    "spawn": "task {} wanted MPI to start further programs, which a step does not",
    "unserved": "task {} asked PMIx for a connection, or a fence of some tasks, which is served on one node only",
}
_OF_NODES = ("apart", "crowded", "deserted")  # words about nodes; all others are about tasks here


class Mpi(NoMpi):
    """The MPI server of a step. `words` is the descriptor for reading the server's words, -1 after the last."""

    def __init__(self, run: "Run", server: "MpiServer | None", reaper: "Reaper") -> None:
        self._run = run
        self._reaper = reaper
        self._server = server
        self._rest = b""
        self._tasks = {task.number: task for task in run.tasks}
        self._left = _MOST_WORDS + len(run.tasks) * _WORDS_OF_TASK
        self._lost: set[int] = set()
        self._left_by = -1  # the task that others wait for in vain
        self._told: set[str] = set()
        self._unneeded = False
        self._life = -1
        self._pid = 0
        self._ends: list[int] = []  # the tasks' ends of their sockets
        self.words = -1
        self.environment: dict[str, str] = {}
        self.ready = server is None or not server.announces
        self.failed = ""

    def start(self) -> None:
        """Start the server, if the MPI plugin has a server. Raises OSError."""
        server = self._server
        if server is None:
            return
        life, self._life = os.pipe2(os.O_CLOEXEC)
        ours = [life]
        self._run.private.append(self._life)
        words = -1
        try:
            words, writer = os.pipe2(os.O_CLOEXEC)
            ours.append(writer)
            self._run.private.append(words)
            sockets = self._sockets() if server.connected else []
            ours += sockets
            environment = self._environment(server, life, writer, sockets)
            become: Become = users_process.become
            if self._run.step.nnodes > 1:
                from nodectl.launch.stepd import mpi_part  # few steps are a part of one

                become = mpi_part.joining(environment, ours)
            self._pid, cgroup = fork_beside(self._run, tree.MPI)
            if self._pid == 0:
                self._become_server(server, environment, ours, cgroup, become)
        finally:
            if not self._pid:  # no server was started that would use these
                ours += self._ends
                self._ends = []
            if not self._pid and words >= 0:
                self._run.private.remove(words)
                ours.append(words)
            for fd in ours:
                os.close(fd)
        os.set_blocking(words, False)
        self.words = words
        self._run.step.helpers.add(self._pid)
        self._reaper.watch(words)

    def _sockets(self) -> "list[int]":
        """Make a socket pair for each task. Returns the server's ends."""
        theirs = []
        try:
            for _ in self._run.tasks:
                one, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
                self._ends.append(one.detach())
                theirs.append(other.detach())
        except OSError:
            for fd in theirs:
                os.close(fd)
            raise
        return theirs

    def _environment(self, server: "MpiServer", life: int, words: int, sockets: "list[int]") -> "dict[str, str]":
        step = self._run.step
        return {
            **server.environment,
            "NODECTL_MPI_TASKS": str(step.ntasks),
            "NODECTL_MPI_JOB": str(step),
            "NODECTL_MPI_LIFE": str(life),
            "NODECTL_MPI_WORDS": str(words),
            "NODECTL_MPI_SOCKETS": ",".join(map(str, sockets)),
        }

    def _become_server(
        self, server: "MpiServer", environment: "dict[str, str]", keep: "list[int]", cgroup: str, become: "Become"
    ) -> None:
        step = self._run.step
        try:
            os.setpgid(0, 0)
            _kernel.perform([operations.default_signals(range(1, 32))], None)
            confinement = Confinement(step, step.environment)
            group = tree.Group(cgroup) if cgroup else None
            if not become(step, confinement, group=group, enter=self._run.enter_container):
                return
            limits = [operations.hard_limit(_DATA, _MEMORY, _MEMORY), operations.hard_limit(_CORE, 0, 0)]
            _kernel.perform(limits, None)
            pass_on(keep)
            os.chdir("/tmp")  # strict confinement lets it write there
            confinement.confine()
            os.execve(server.argv[0], server.argv, environment)
        except OSError as error:
            os.write(int(environment["NODECTL_MPI_WORDS"]), f"failed {error.strerror}\n".encode())
        finally:
            os._exit(children.NO_PROGRAM)

    def introduce(self, child: "Child") -> None:
        """Give a task the socket and the variables of the server, and call mpi_p_slurmstepd_task. Raises LaunchFailed.

        The task closes the sockets of the other tasks first of all.
        """
        task = child.task
        if self._ends:
            task.mpi_fd = self._ends[task.local_id]
            child.stepd_fds = [*child.stepd_fds, *(fd for fd in self._ends if fd != task.mpi_fd)]
        task.environment.update(self.environment)
        run = self._run
        run.call(launch_order.MPI_SLURMSTEPD_TASK, run.step, task, task=task)

    def tasks_have_begun(self) -> None:
        """Close the tasks' sockets in the stepd, once all tasks have started or will not start.

        A child closes them last (`user_helpers.let_go`), because the server may have sent any descriptor over them.
        """
        ends, self._ends = self._ends, []
        try:
            user_helpers.let_go(self._run, ends)
        except OSError as error:
            self._end(f"close the sockets of its MPI server: {error.strerror}")

    def read(self) -> None:
        """Read and handle the server's words.

        Nothing that follows from a word collects a child: that would read here again.
        """
        if self.words < 0:
            return
        try:
            data = os.read(self.words, _LONGEST_WORD)
        except BlockingIOError:
            return
        self._left -= len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hear(line.decode("utf-8", "surrogateescape"))
        too_much = self._left < 0 or len(self._rest) > _LONGEST_WORD
        if too_much:
            self._end("its MPI server says too much")
        if not data or too_much:
            self._reaper.unwatch(self.words)
            self._run.private.remove(self.words)
            os.close(self.words)
            self.words = -1

    def _hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "ready":
            self.ready = True
        elif word == "failed":
            self.failed = f"it could not begin: {rest[:200] if rest.isprintable() else '?'}"
        elif word == "env" and not self.ready:
            name, equals, value = rest.partition("=")
            if equals and name.startswith(_PREFIXES) and name.replace("_", "a").isalnum() and "\0" not in value:
                self.environment[name] = value
        else:
            number, _, code = rest.partition(" ")
            known = range(self._run.step.nnodes) if word in _OF_NODES else self._tasks
            if number.isascii() and number.isdigit() and len(number) < 10 and int(number) in known:
                self._hear_of(word, int(number), code)

    def _hear_of(self, word: str, number: int, code: str) -> None:
        if word in _ENDING:
            self._end(_ENDING[word].format(number))
        elif word in _TOLD:
            self._say(_TOLD[word].format(number))
        elif word in _WORDS:
            _WORDS[word](self, number, code)

    def _abort(self, rank: int, code: str) -> None:
        shown = code if code.isascii() and code.removeprefix("-").isdecimal() and len(code) < 12 else "?"
        self._end(f"task {rank} called MPI_Abort with code {shown}")

    def _stuck(self, rank: int, _: str) -> None:
        self._lost.add(rank)
        self._left_by = rank

    def judge(self) -> None:
        """End the step if a task has left MPI while the remaining tasks wait.

        Called when no word is being handled and no child collected.
        """
        rank, self._left_by = self._left_by, -1
        if rank >= 0:
            self._reaper.collect()  # the task's exit status says more
            self._end(f"task {rank} has left MPI and others wait for it")

    def _say(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._run.say(text)

    def _within(self, rank: int, _: str) -> None:
        self._lost.add(rank)

    def _without(self, rank: int, _: str) -> None:
        self._lost.discard(rank)

    def _lose(self, rank: int, _: str) -> None:
        self._lost.add(rank)
        task = self._tasks[rank]
        if task.status:
            self._task_failed(task)

    def task_ended(self, task: "Task") -> None:
        """End the step if the task failed within MPI: the remaining tasks would wait for the failed task."""
        if task.status:
            self.read()  # words sent before the task's end
            self._task_failed(task)

    def _task_failed(self, task: "Task") -> None:
        if task.number not in self._lost:
            return
        if task.out_of_memory:
            self._end_as(OUT_OF_MEMORY, self._run.end_reasons.reason)
        else:
            self._end(f"task {task.number} {children.said(task.status or 0)} before MPI_Finalize")

    def _end(self, why: str) -> None:
        if self._run.state == RUNNING:
            if self._run.step.nnodes == 1:  # else one of several nodes is to say it
                self._run.say(f"{why}: the step ends")
            self._end_as(FAILED, why)

    def _end_as(self, state: str, reason: str) -> None:
        """End the step, on all nodes of a step over several nodes."""
        run = self._run
        if run.state == RUNNING and run.step.nnodes > 1:
            run.links.tell_launcher({"event": "fatal", "state": state, "reason": reason})
        self._reaper.termination.end(state, reason)

    def ended(self, pid: int, status: int) -> None:
        """End the step if the server has ended too early. Called for each ended child except tasks."""
        if pid != self._pid:
            return
        self._pid = 0  # a later child may get its number
        if not self._unneeded:
            self.read()  # it may have reported its failure, before poll(2) says so
            self.failed = self.failed or f"it {children.said(status)}"
            self._end(f"its MPI server: {self.failed}")

    def finish(self) -> None:
        """End the server by closing the life pipe, after 5 seconds by SIGKILL, and call mpi_p_client_fini."""
        self.tasks_have_begun()
        self._unneeded = True
        if self._reaper.termination.suspension.suspended:
            self._thaw()
        if self._life >= 0:
            self._run.private.remove(self._life)
            os.close(self._life)
            self._life = -1
        self._wait(lambda: not self._pid and self.words < 0)
        if self._pid:
            signals.send_child(self._pid, signals.KILL)
            self._wait(lambda: not self._pid)
        self._run.call(launch_order.MPI_CLIENT_FINI, self._run.step)

    def _thaw(self) -> None:
        """Kill and resume a step killed while suspended: only the server has still to end, everything else is dead."""
        run = self._run
        run.kill()
        run.call(launch_order.PROCTRACK_SIGNAL, run.step.container_id, signals.CONT)

    def remove_group(self) -> None:
        """Remove the server's cgroup, after the step's processes have ended."""
        if self._run.group is not None:
            self._run.group.child("user").child(tree.MPI).remove()

    def _wait(self, is_over: "Callable[[], bool]") -> None:
        """Run the loop until `is_over()` is true, at most 5 seconds.

        The server's own children may hold the pipe of its words, too.
        """
        limit = time.monotonic() + _END_SECONDS
        while not is_over() and time.monotonic() < limit:
            self._reaper.turn(_SLOW)


_WORDS: "dict[str, Callable[[Mpi, int, str], None]]" = {
    "abort": Mpi._abort,
    "lost": Mpi._lose,
    "stuck": Mpi._stuck,
    "within": Mpi._within,
    "without": Mpi._without,
}


def begin(run: "Run", reaper: "Reaper") -> None:
    """Call mpi_p_slurmstepd_prefork, start the server and wait until the server is ready. Raises LaunchFailed.

    `Mpi.introduce` calls mpi_p_slurmstepd_task for each task later.
    """
    try:
        run.node = run.node.with_mpi(run.step.mpi)
    except PluginRefused as refused:
        raise run.failed(str(refused)) from None
    run.call(launch_order.MPI_SLURMSTEPD_PREFORK, run.step)
    run.mpi = mpi = Mpi(run, run.step.mpi_server, reaper)
    try:
        mpi.start()
    except OSError as error:
        raise run.failed(f"start the server of {run.step.mpi}: {error.strerror or error}") from None
    limit = time.monotonic() + _BEGIN_SECONDS
    while not mpi.ready and run.state == RUNNING and not mpi.failed:
        if time.monotonic() >= limit:
            mpi.failed = f"it was not ready after {_BEGIN_SECONDS:g} s"
            break
        reaper.turn(_SLOW)
    if run.state != RUNNING:
        raise LaunchFailed(run.reason)
    if mpi.failed:
        raise run.failed(f"the server of {run.step.mpi}: {mpi.failed}")
