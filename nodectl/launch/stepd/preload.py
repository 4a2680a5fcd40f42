"""The stepd's side of a step's warm interpreter (--preload). Runs in the stepd, as root.

The interpreter is a process of the user's (`nodectl/launch/task/warm.py`), in the step's cgroup. A task goes through
all of its stages, and executes `hand_over` in the place of its program. `hand_over` sends what the task has to the
interpreter, which forks a process that can be the task. The stepd believes neither: a process becomes the task only if
it is the stepd's own child, born in the interpreter's cgroup, and no process that the stepd knows. Then the stepd moves
it into the task's cgroup and waits for its end instead.

The interpreter says what it has done in a pipe, so that it can send no descriptor. The stepd sends it nothing; over the
socket, whose end for the tasks the stepd keeps, nothing can be received.
"""

import _socket
import os
import time

from nodectl import messages
from nodectl.kernel import _kernel, children, identity, operations, pseudo_file, signals
from nodectl.kernel.closing import pass_on
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from nodectl.launch.confine.confinement import Confinement
from nodectl.launch.stepd.run import LaunchFailed, NoPreload
from nodectl.launch.stepd.start import fork_beside
from nodectl.launch.task import environment, rlimits, users_process
from nodectl.model import launch_order
from nodectl.model.states import RUNNING
from nodectl.model.step import HandOver
from nodectl.plugin_host import BUILTIN_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.launch.stepd.reaper import Reaper
    from nodectl.launch.stepd.run import Run
    from nodectl.model.step import Task

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_WARM = os.path.join(_HERE, "task", "warm.py")
HAND_OVER = os.path.join(_HERE, "c", "hand_over")
_LONGEST_WORDS = 8192
_FIRST_WORDS, _WORDS_OF_TASK = 1 << 16, 1 << 10  # bytes that the interpreter may say: at first, and for each task
_GO, _REFUSED = b"gg", b"xx"  # a byte for the task, and one for the process that would become the task
_NUMBER = 10  # digits of a pid
_LAST_WORDS = 5.0  # seconds for an interpreter that has not said yet why tasks ran without it
_WHY = {
    "program": "its program is no Python program",
    "wrapper": "its python is a script that chooses an interpreter, as pyenv's: name the interpreter itself",
    "options": "it gives Python other options than -u, -m and -c",
    "interpreter": "its python is another one than that which has imported the modules",
    "variables": "its variables that Python reads when it begins (PYTHON*, LC_*, LD_*) are others",
    "sent": "it could not send what it has",
    "failed": "the interpreter could not be forked",
    "ctypes": "its python has no ctypes, with which the task would end with the step runner",
}


class Preload(NoPreload):
    """The warm interpreter of a step. `ready`: it has imported the modules; `failed`: why it cannot."""

    __slots__ = (
        "_cgroup", "_count", "_handed", "_left", "_pid", "_reaper", "_rest", "_run", "_socket", "_told", "_unheard",
        "_unneeded", "_waiting", "_words", "failed", "ready",
    )  # fmt: skip

    def __init__(self, run: "Run", reaper: "Reaper") -> None:
        self._run = run
        self._reaper = reaper
        self._rest = b""
        self._left = _FIRST_WORDS
        self._count = 0
        self._waiting: dict[str, Task] = {}  # by token
        self._unheard: dict[str, Task] = {}  # by token: ended before the interpreter said anything of them
        self._handed: dict[int, Task] = {}  # by the pid that a task had before
        self._told: set[str] = set()
        self._unneeded = False
        self._pid = 0
        self._socket = -1  # the tasks' end
        self._cgroup = ""
        self._words = -1  # the pipe of the interpreter's words, -1 after the last
        self.ready = False
        self.failed = ""

    # The interpreter.

    def start(self) -> None:
        """Start the interpreter. Raises OSError."""
        run = self._run
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        ours.shutdown(_socket.SHUT_RD)  # so no descriptor of the user's can ever lie in it
        self._socket, other = ours.detach(), theirs.detach()
        writer = -1
        try:
            self._words, writer = os.pipe2(os.O_CLOEXEC)
            run.private.append(self._words)
            os.set_blocking(self._words, False)
            self._reaper.watch(self._words)
            runner = os.getpid()
            self._pid, cgroup = fork_beside(run, tree.PRELOAD)
            if self._pid == 0:
                self._become(other, writer, cgroup, runner)
        finally:
            os.close(other)
            if writer >= 0:
                os.close(writer)
        if run.group is not None:
            self._cgroup = f"{run.step.cgroup}/user/{tree.PRELOAD}"

    def _become(self, socket: int, words: int, cgroup: str, runner: int) -> None:
        """Become the user and execute the interpreter, in the child. Never returns."""
        step = self._run.step
        try:
            os.setpgid(0, 0)
            _kernel.perform([operations.default_signals(range(1, 32))], None)
            variables = environment.for_tasks(step)
            confinement = Confinement(step, variables)
            group = tree.Group(cgroup) if cgroup else None
            if not users_process.become(step, confinement, group=group, enter=self._run.enter_container):
                return
            if self._run.group is None:
                _kernel.perform([operations.die_with(runner)], None)
            pass_on((socket, words))
            if mask := self._run.tasks[0].mask:
                os.sched_setaffinity(0, [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1])
            _kernel.perform([operations.enter_directory(step.cwd, "", "")], None)
            if path := variables.get("TMPDIR"):
                _kernel.perform([operations.make_tmpdir(path, "", "")], None)
            confinement.confine()
            if step.io_priority >= 0:
                _kernel.perform([operations.io_priority(step.io_priority)], None)
            _kernel.perform(list(rlimits.soft_limits(step.rlimits)), None)
            first = step.argv[0].split() if step.bulk else step.argv  # a template may be a line of the shell
            argv = [HAND_OVER, "warm", _WARM, str(socket), str(words), ",".join(step.preload), *first]
            os.execve(HAND_OVER, argv, variables)
        except Exception as error:  # the top of a process
            os.write(words, f"failed {error}\n".encode())
        finally:
            os._exit(children.NO_PROGRAM)

    def ended(self, pid: int, status: int) -> None:
        """Handle the end of the interpreter, or of the earlier process of a task."""
        if pid == self._pid:
            self._pid = 0  # a later child may get its number
            if not self._unneeded:
                self._read()  # it may have reported its failure
                self._lost(children.said(status))
        elif pid in self._handed:
            task = self._handed.pop(pid)
            if os.WIFSIGNALED(status) and task.status is None:  # the signal was meant for the task
                signals.send_child(task.pid, os.WTERMSIG(status))

    def _lost(self, how: str) -> None:
        """Have tasks execute their programs from now on, because there is no interpreter any more."""
        self._close_words()
        if not self.ready:
            self.failed = self.failed or f"the interpreter {how} before it had imported the modules"
            return
        self._warn(f"the interpreter {how}: from now on tasks start one of their own")
        for token in list(self._waiting):
            self._answer(token, _REFUSED)

    def _close_words(self) -> None:
        if self._words >= 0:
            self._reaper.unwatch(self._words)
            self._run.private.remove(self._words)
            os.close(self._words)
            self._words = -1

    def finish(self) -> None:
        """End the interpreter, because the step is over. It ends by itself when no task has its socket any more."""
        self._unneeded = True
        for token in list(self._waiting):
            self._answer(token, _REFUSED)
        if self._socket >= 0:
            os.close(self._socket)
            self._socket = -1
        limit = time.monotonic() + _LAST_WORDS
        while self._unheard and self._words >= 0 and (left := limit - time.monotonic()) > 0:
            self._reaper.turn(left)
        self._close_words()
        if self._pid and not self._run.step.container_id:
            signals.send_child(self._pid, signals.KILL)

    def remove_group(self) -> None:
        """Remove the interpreter's cgroup, after the step's processes have ended."""
        if self._run.group is not None:
            self._run.group.child("user").child(tree.PRELOAD).remove()

    # Its tasks.

    def introduce(self, task: "Task") -> None:
        """Have a task hand itself over, before the task's start. Raises OSError."""
        if self._words < 0:
            return
        self._count += 1
        self._left += _WORDS_OF_TASK
        token = str(self._count)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        self._run.private.append(writer)
        how = "leads" if self._run.bulk is not None else ""  # a command leads a process group of its own
        if self._run.group is None:
            how += " dies"  # with this process: nothing else shows whose it is
        words = [HAND_OVER, "task", str(self._socket), str(reader), token, how]
        task.hand_over = HandOver((self._socket, reader), writer, words)
        self._waiting[token] = task

    def begun(self, task: "Task") -> None:
        """Close the task's own end, once it has started or will not start."""
        if task.hand_over is not None and task.hand_over.fds[1] >= 0:
            os.close(task.hand_over.fds[1])
            task.hand_over.fds = (-1, -1)

    def task_ended(self, task: "Task") -> None:
        """Forget a task that has ended, or could not be started."""
        self.begun(task)
        if task.hand_over is not None and task.hand_over.verdict >= 0:
            token = task.hand_over.words[4]
            self._answer(token, _REFUSED)
            if self._words >= 0 and not self._unneeded:
                self._unheard[token] = task  # a program that is no Python program does not wait for an answer

    def _answer(self, token: str, verdict: bytes) -> None:
        task = self._waiting.pop(token)
        assert task.hand_over is not None  # noqa: S101  # it waits
        try:
            os.write(task.hand_over.verdict, verdict)
        except BrokenPipeError:
            pass  # the task no longer waits: it executes its program, or has ended
        self._run.private.remove(task.hand_over.verdict)
        os.close(task.hand_over.verdict)
        task.hand_over.verdict = -1

    def reads(self, fd: int) -> bool:
        """Read and handle the interpreter's words. Returns False if `fd` is not their descriptor."""
        if fd != self._words or fd < 0:
            return False
        self._read()
        return True

    def _read(self) -> None:
        if self._words < 0:
            return
        try:
            data = os.read(self._words, _LONGEST_WORDS)
        except BlockingIOError:
            return
        self._left -= len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hear(line.decode("utf-8", "replace"))
        if not data or self._left < 0 or len(self._rest) > _LONGEST_WORDS:
            if self._pid:
                signals.send_child(self._pid, signals.KILL)  # `ended` tells how it has ended, if it has ended itself
            self._close_words()  # last: it would end for want of a reader

    def _hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        token, _, what = rest.partition(" ")
        if word == "ready":
            self.ready = True
        elif word == "failed" and not self.ready:
            self.failed = "".join(one if one.isprintable() else " " for one in rest[:500]) or "?"
        elif word == "took" and token in self._waiting:
            if what.isascii() and what.isdecimal() and len(what) <= _NUMBER and self._take(token, int(what)):
                self._answer(token, _GO)
            else:
                self._decline(token, "failed")
        elif word == "declined" and token in self._waiting:
            self._decline(token, what)
        elif (task := self._unheard.pop(token, None)) is not None and word == "declined":
            self._tell_why(task, what)

    def _decline(self, token: str, why: str) -> None:
        task = self._waiting[token]
        self._answer(token, _REFUSED)
        self._tell_why(task, why)

    def _tell_why(self, task: "Task", why: str) -> None:
        """Tell the step's user why the task starts a program of its own."""
        which = "command" if self._run.bulk is not None else "task"
        if why in _WHY:
            self._warn(f"{which} {task.global_id} starts without it, because {_WHY[why]}", why)

    def _take(self, token: str, pid: int) -> bool:
        """Make this process the task. Returns False for an unsuitable process, or an ended task."""
        run, task = self._run, self._waiting[token]
        if not self._is_its_fork(pid) or not _runs(task.pid):
            return False
        if run.group is not None:
            try:
                run.group.child("user").child(f"task_{task.local_id}").add(pid)
            except OSError:
                return False  # it has ended
        run.progress.done(task.local_id + 1)
        self._handed[task.pid] = task
        run.step.helpers.add(task.pid)  # the end of the earlier process is not the task's
        self._reaper.replace(task, pid)
        try:
            run.call(launch_order.PROCTRACK_ADD, run.step, pid, task=task)
        except LaunchFailed:
            self._reaper.termination.stop()
        return True

    def _is_its_fork(self, pid: int) -> bool:
        """Return True for a child of this process, born in the interpreter and without a role yet."""
        run = self._run
        if pid == self._pid or pid in run.step.helpers or self._reaper.knows(pid) or not _runs(pid):
            return False
        try:
            if run.group is not None:
                return cgroup_of(pid) == self._cgroup
            status = pseudo_file.read(f"/proc/{pid}/status")
        except OSError:
            return False
        uids = status.partition(b"\nUid:")[2].split(None, 4)[:4]
        return uids == [str(run.step.uid).encode()] * 4

    def _warn(self, text: str, key: str = "") -> None:
        """Tell the step's user once."""
        if (key or text) not in self._told:
            self._told.add(key or text)
            messages.warning(f"--preload: {text}")


def _runs(pid: int) -> bool:
    """Return True while this child has not ended."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _hook_as_root(run: "Run") -> str:
    """Return a hook that a plugin has for each task, as root, "" if no plugin has one.

    nodectl's own task plugins do not count: their hook sets the CPUs, which a task hands over.
    """
    for row in (launch_order.SPANK_TASK_INIT_PRIVILEGED, launch_order.SPANK_TASK_POST_FORK):
        if run.spank.has(row):
            return row.call
    row = launch_order.TASK_PRE_LAUNCH_PRIV
    for plugin in run.node.stacks["task"]:
        if not plugin.path.startswith(f"{BUILTIN_DIR}/"):
            for hook in (row.call, row.plan):
                if hook in plugin.hooks:
                    return hook
    return ""


def begin(run: "Run", reaper: "Reaper") -> None:
    """Start the interpreter and wait until the modules are imported. Raises LaunchFailed.

    The user's code runs from here on, so the client's connection is checked once more.
    """
    if any(one is not None for one in run.step.mem_policies):
        raise run.failed("--preload: not with --mem-bind: the memory of the modules has been placed already")
    if "pid" in run.step.container.get("namespaces", ()):  # type: ignore[operator]  # the daemon's words
        raise run.failed("--preload: not where jobs have a pid namespace of their own: its first process gets orphans")
    if identity.BEGAN_AS == 0 and (hook := _hook_as_root(run)):
        why = "what it does as root to a task would not hold for what the task becomes"
        raise run.failed(f"--preload: not with a plugin that has {hook}: {why}")
    reaper.turn(0)
    if run.state != RUNNING:
        raise LaunchFailed(run.reason)
    run.preload = preload = Preload(run, reaper)
    try:
        preload.start()
    except OSError as error:
        raise run.failed(f"--preload: start Python: {error.strerror}") from None
    while not preload.ready and run.state == RUNNING and not preload.failed:
        reaper.turn(reaper.patience())
    if run.state != RUNNING:
        raise LaunchFailed(run.reason)
    if preload.failed:
        raise run.failed(f"--preload: {preload.failed}")
