"""The destinations of each task's three streams: decided before the fork, connected by the task itself, as the user.

A stream leads straight into the client's descriptor, into a file that the task opens as the user, to /dev/null, or
into a pipe (a pty with -u) whose other end is the relay's. Only labels, -u and a stdin shared by several tasks need
the relay: nothing else is copied.
"""

import os
import termios

from nodectl.kernel import operations, user_path
from nodectl.kernel.identity import BEGAN_AS
from nodectl.launch.streams import filename

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nodectl.kernel.operations import Operation
    from nodectl.model.step import Step

IN, OUT, ERR = 0, 1, 2
# Stand for the client's descriptors, of which each task or relay takes copies (client_streams.py).
CLIENT = (-2, -3, -4)
NONE = -1


class Stream:
    """A stream of a task, or shared by several tasks: an open descriptor, a number of CLIENT, or a path to open.

    With both, a relay writes the file, and the task only checks that it may open it. A `shared` file was emptied before
    the fork, because a late task would remove what other tasks have written; or it keeps its content, as the user
    wants.
    """

    __slots__ = ("_connection", "fd", "number", "path", "shared")

    def __init__(self, number: int, *, fd: int = -1, path: str = "", shared: bool = False) -> None:
        self.number = number
        self.fd = fd
        self.path = path
        self.shared = shared
        self._connection: Operation | None = None

    def connection(self, behind: str, *, of_script: bool) -> "Operation":
        """Return the operation making this stream descriptor 0, 1 or 2 of a task, as the user.

        `behind`, the same for all tasks that have this stream, follows the message of a failure. `of_script`: the task
        is a batch script.
        """
        if self._connection is None:
            name = ("input", "output", "error")[self.number]
            what = f"open {name} file {self.path!r}: "
            self._connection = operations.stream(
                self.number,
                self.fd,
                self.path,
                shared=self.shared,
                of_script=of_script,
                what=what,
                behind=behind,
            )
        return self._connection


def of_client(fd: int, clients: "Sequence[int]") -> int:
    """Return the descriptor itself, or the client's descriptor behind a number of CLIENT."""
    return clients[CLIENT.index(fd)] if fd in CLIENT else fd


class Copy:
    """A relay's work: copy from `source` to `sinks`, labelled line by line where `label` is not None.

    `task`, `number`: the stream's task and number. `keeps`: a file that the relay opens keeps its content.
    """

    __slots__ = ("ends_sinks", "keeps", "label", "number", "path", "sinks", "source", "task")

    def __init__(
        self,
        source: int,
        sinks: "Iterable[int]",
        label: "str | None" = None,
        path: str = "",
        *,
        ends_sinks: bool = False,
        keeps: bool = False,
        task: int = 0,
        number: int = IN,
    ) -> None:
        self.source = source
        self.task = task
        self.number = number
        self.sinks = list(sinks)
        self.label = label
        self.path = path  # a file the relay opens, as the user, instead of sinks
        self.ends_sinks = ends_sinks
        self.keeps = keeps

    def of_client(self) -> bool:
        """Return True if the copy needs a descriptor of the client's."""
        return any(fd in CLIENT for fd in (self.source, *self.sinks))


class TaskStreams:
    """The streams of all tasks, and the relays' work: `inputs` end with the step, `outputs` are waited for.

    `takers` is the number of tasks that need the client's descriptors; `taking` is how each of these takes them, see
    `operations.take_streams`.
    """

    __slots__ = ("_as_user", "_client", "_step", "inputs", "outputs", "takers", "taking", "tasks", "terminal")

    def __init__(self, step: "Step", as_user: "Callable[[Callable[[], None]], None]", *, has_client: bool) -> None:
        """Choose the streams of the step's tasks.

        `as_user(act)` runs `act` where the tasks will open their files, in a process of the tasks' user. `has_client`:
        a client waits for the step, and its streams come.
        """
        self._step = step
        self._as_user = as_user
        self._client = CLIENT if has_client else (NONE, NONE, NONE)
        self.inputs: list[Copy] = []
        self.outputs: list[Copy] = []
        self.tasks: list[list[Stream]] = [[] for _ in range(step.ntasks)]
        self.terminal = NONE
        if step.pty:
            self._give_terminal(step.pty[0])
        else:
            self._input()
            self._output(OUT, step.stdout, self._client[OUT])
            self._output(ERR, step.stderr, self._client[ERR])
        self.takers = sum(any(stream.fd in CLIENT for stream in streams) for streams in self.tasks)
        self.taking = self._choose_taking()

    def _input(self) -> None:
        pattern, numbers = self._step.stdin, self._step.numbers
        chosen = _one_task(pattern, self._step.total_tasks)
        from_client = pattern in ("", "all", "-") or chosen is not None
        stdin = self._client[IN]
        if pattern == "none" or (from_client and stdin == NONE):
            self._everyone_reads(path="/dev/null")
        elif chosen is not None:
            for rank, streams in zip(numbers, self.tasks, strict=True):
                streams.append(Stream(IN, fd=stdin) if rank == chosen else Stream(IN, path="/dev/null"))
        elif not from_client:
            for rank, streams in zip(numbers, self.tasks, strict=True):
                streams.append(Stream(IN, path=filename.expand(pattern, self._step, rank)))
        elif len(numbers) == 1:
            self._everyone_reads(fd=stdin)
        else:
            sinks = []
            for streams in self.tasks:
                reader, writer = os.pipe2(os.O_CLOEXEC)
                streams.append(Stream(IN, fd=reader))
                sinks.append(writer)
            self.inputs.append(Copy(stdin, sinks, ends_sinks=True))

    def _give_terminal(self, chosen: int) -> None:
        """Give the terminal of --pty to a single task, perhaps of another node, and /dev/null to the rest."""
        theirs = NONE
        if chosen in self._step.numbers:
            from nodectl.launch.streams import terminal  # imported only where needed

            self.terminal, theirs = terminal.make(self._step)
        for rank, streams in zip(self._step.numbers, self.tasks, strict=True):
            for number in (IN, OUT, ERR):
                has_it = rank == chosen
                streams.append(Stream(number, fd=theirs) if has_it else Stream(number, path="/dev/null"))

    def _everyone_reads(self, *, fd: int = -1, path: str = "") -> None:
        stream = Stream(IN, fd=fd, path=path)
        for streams in self.tasks:
            streams.append(stream)

    def _output(self, number: int, pattern: str, client: int) -> None:
        step = self._step
        if number == ERR and pattern == "" and step.stdout not in ("", "all", "-"):
            pattern = step.stdout  # the default of stderr is where stdout goes
        chosen = _one_task(pattern, step.total_tasks)
        to_client = pattern in ("", "all", "-") or chosen is not None
        shared = not to_client and pattern != "none" and step.total_tasks > 1 and not filename.per_task(pattern)
        # A file shared with other nodes was emptied before: this node does not know what their tasks have written.
        keeps = step.open_append or not (step.nnodes == 1 or filename.per_node(pattern))
        if shared and not step.label and not keeps:
            path = filename.expand(pattern, step, 0)
            self._as_user(lambda: _empty(path))
        kept = shared or keeps
        width = len(str(step.total_tasks - 1))
        nowhere, to_stdout, straight = (
            Stream(number, path="/dev/null"),
            Stream(number, fd=OUT),
            Stream(number, fd=client),
        )
        for rank, streams in zip(step.numbers, self.tasks, strict=True):
            if pattern == "none" or (chosen is not None and rank != chosen) or (to_client and client == NONE):
                streams.append(nowhere)
                continue
            if number == ERR and pattern == step.stdout and not to_client and not step.label:
                streams.append(to_stdout)  # one open file for both, so that neither truncates the other
                continue
            path = "" if to_client else filename.expand(pattern, step, rank)
            unbuffered = step.unbuffered and number == OUT
            if not step.label and not unbuffered:
                streams.append(straight if to_client else Stream(number, path=path, shared=kept))
                continue
            ours, theirs = _raw_pty(step.uid) if unbuffered else os.pipe2(os.O_CLOEXEC)
            streams.append(Stream(number, fd=theirs, path=path, shared=True))
            label = f"{rank:>{width}}: " if step.label else None
            sinks = [client] if to_client else []
            self.outputs.append(Copy(ours, sinks, label, path, keeps=keeps, task=rank, number=number))

    def _choose_taking(self) -> int:
        if any(copy.of_client() for copy in (*self.inputs, *self.outputs)):
            return operations.ALL_STAY  # relays take copies too, and do not say when
        return operations.TAKES_ALL if self.takers == 1 else operations.LAST_TAKES_ALL

    def close(self) -> None:
        """Close pipes and ptys in the stepd, when every task and relay is forked."""
        for fd in self._private():
            os.close(fd)
        self.inputs = []
        self.outputs = []
        self.tasks = []
        self.terminal = NONE

    def _private(self) -> set[int]:
        """Return the descriptors made here."""
        given = {*CLIENT, OUT, NONE}
        made = {self.terminal, *(stream.fd for streams in self.tasks for stream in streams)}
        for copy in (*self.inputs, *self.outputs):
            made |= {copy.source, *copy.sinks}
        return made - given


def _one_task(pattern: str, ntasks: int) -> "int | None":
    """Return the task named by a number; None if the pattern is a file name, as is a number without a task."""
    return int(pattern) if pattern.isdecimal() and int(pattern) < ntasks else None


def _empty(path: str) -> None:
    """Truncate a file of several tasks. Each task reports an error with the file when the task opens the file."""
    try:
        user_path.empty_file(path)
    except OSError:
        pass


def _raw_pty(uid: int) -> tuple[int, int]:
    """Make a pty without any change of bytes. A program sees a terminal, so stdio flushes each line."""
    ours, theirs = os.openpty()
    settings = termios.tcgetattr(theirs)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    if BEGAN_AS == 0:
        os.fchown(theirs, uid, -1)
    return ours, theirs
