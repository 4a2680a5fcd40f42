"""The warm interpreter of a step with --preload: imports modules once, and forks into a step's tasks.

Executed by the step's user with the user's own python3, by `nodectl/launch/c/hand_over.c`:

    python3 warm.py SOCKET WORDS MODULE[,MODULE...]

SOCKET brings a message for each task, with the texts and descriptors that `hand_over` has written. WORDS is a pipe to
the step runner, which takes a line for each event:

    ready                  the modules are imported
    failed TEXT            they are not
    took TOKEN PID         this process can be the task
    declined TOKEN WHY     the task has to execute its program itself

The process that can be the task waits for the runner's verdict in a pipe, then takes over what the task has and runs
the script as `python3 script.py` does. It is forked twice, because the runner waits for its own children only: an
orphan of its step is one.

Imports nothing but the standard library, for CPython 3.9 and later, and as few modules as possible: a task sees them in
sys.modules.
"""

from __future__ import annotations

import _signal
import _socket
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import TextIO

    Form = tuple[str, "str | None"]  # encoding and errors of a stream

TAKEN = "take"
_LONGEST_MESSAGE = 256
_DESCRIPTORS = 6  # texts, verdict, directory, 0, 1, 2
_LONGEST_REASON = 400
_OF_INTERPRETER = ("PYTHON", "LC_", "LD_", "LANG", "GLIBC_TUNABLES")  # what an interpreter reads only when it begins
_KEPT_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)  # which Python ignores, whoever executes it
_PR_SET_PDEATHSIG = 1
GO = b"g"


class Declined(Exception):
    """The task cannot be a fork of this interpreter; str() is a word for the step runner."""


class Taken:
    """A task that is handed over: the texts of `hand_over`, and the descriptors of the message."""

    def __init__(self, data: bytes, fds: list[int]) -> None:
        self.fds = fds
        texts = data.split(b"\0")
        self.identity = tuple(map(int, texts[0].split()))
        self.pid, self.group = int(texts[1]), int(texts[2])
        how = texts[3].split()
        self.leads, self.dies = b"leads" in how, b"dies" in how
        self.umask, self.nice = int(texts[4]), int(texts[5])
        self.blocked, self.ignored, self.cpus = (set(map(int, text.split())) for text in texts[6:9])
        limits = list(map(int, texts[9].split()))
        self.limits = list(zip(limits[::3], limits[1::3], limits[2::3]))  # noqa: B905  # not in Python 3.9
        end = 11 + int(texts[10])
        self.words = [os.fsdecode(word) for word in texts[11:end]]
        self.environment = dict(text.partition(b"=")[::2] for text in texts[end:-1])
        self.unbuffered, self.kind, self.rest = command_of(self.words)


def command_of(words: Sequence[str]) -> tuple[bool, str, Sequence[str]]:
    """Return whether -u is given, the kind of program ("" a file, "-m", "-c"), and its words. Raises Declined.

    Other options change the interpreter itself: these programs get one of their own.
    """
    unbuffered, rest = False, words[1:]
    while rest and rest[0] == "-u":
        unbuffered, rest = True, rest[1:]
    if len(rest) > 1 and rest[0] in ("-m", "-c"):
        return unbuffered, rest[0], rest[1:]
    if not rest or rest[0].startswith("-"):
        raise Declined("options")
    return unbuffered, "", rest


def identity_of(path: str) -> tuple[int, ...]:
    """Return what tells an interpreter from others: the directory, where a pyvenv.cfg may lie, and the file."""
    around, file = os.stat(os.path.dirname(path) or "."), os.stat(path)
    return around.st_dev, around.st_ino, file.st_dev, file.st_ino


def variables_of(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables read by an interpreter only at the start."""
    prefixes = tuple(name.encode() for name in _OF_INTERPRETER)
    return {name: value for name, value in environment.items() if name.startswith(prefixes)}


class Warm:
    """The interpreter, and its two connections."""

    def __init__(self, socket: int, words: int) -> None:
        self._socket = _socket.socket(fileno=socket)
        self._words = words
        self._identity = identity_of(sys.executable)
        self._variables = variables_of(os.environb)
        self.streams = [(stream.encoding, stream.errors) for stream in (sys.stdin, sys.stdout, sys.stderr)]

    def say(self, line: str) -> None:
        """Send a line to the step runner."""
        os.write(self._words, line.encode("utf-8", "backslashreplace") + b"\n")

    def fail(self, text: str) -> None:
        """Send the reason why there is no interpreter, and end."""
        shown = "".join(one if one.isprintable() else " " for one in text)
        self.say("failed " + shown[:_LONGEST_REASON])
        os._exit(1)

    def import_all(self, names: Sequence[str]) -> None:
        """Import the modules, or send the reason why this is not possible."""
        for name in names:
            try:
                __import__(name)
            except BaseException as error:  # whatever a module raises
                self.fail(f"import {name}: {type(error).__name__}: {error}")
            if more := len(os.listdir("/proc/self/task")) - 1:
                self.fail(
                    f"import {name}: it starts {more} thread{'s'[: more > 1]}, and a process with threads cannot be "
                    "forked; for numpy, OPENBLAS_NUM_THREADS=1 or OMP_NUM_THREADS=1 prevents it"
                )
        for one in (sys.stdout, sys.stderr):  # else what the modules have printed would be each task's
            if one is not None:
                one.flush()
        gc.collect()
        gc.freeze()

    def serve(self) -> Taken:
        """Fork for one task after the other. Returns the task, in the process that can be the task.

        Ends when the step runner and all tasks have closed the socket.
        """
        while True:
            data, ancillary, _, _ = self._socket.recvmsg(
                _LONGEST_MESSAGE, _socket.CMSG_SPACE(4 * _DESCRIPTORS), _socket.MSG_CMSG_CLOEXEC
            )
            if not data:
                os._exit(0)
            fds = [fd for _, _, some in ancillary for fd in memoryview(some[: len(some) // 4 * 4]).cast("i")]
            word, _, rest = data.decode("ascii", "replace").partition(" ")
            token, _, why = rest.partition(" ")
            try:
                job = self._fork(word, token, why, fds)
                if job is not None:
                    return job
            except Declined as declined:
                self.say(f"declined {token} {declined}")
            except (OSError, ValueError, IndexError):
                self.say(f"declined {token} failed")
            for fd in fds:
                os.close(fd)

    def _fork(self, word: str, token: str, why: str, fds: list[int]) -> Taken | None:
        if word != TAKEN or len(fds) != _DESCRIPTORS:
            raise Declined(why or "sent")
        job = Taken(os.pread(fds[0], os.fstat(fds[0]).st_size, 0), fds)
        if job.identity != self._identity:
            raise Declined("interpreter")
        if variables_of(job.environment) != self._variables:
            raise Declined("variables")
        if job.dies:
            try:
                import ctypes  # noqa: F401  # no other module of Python's has prctl(2)
            except ImportError:
                raise Declined("ctypes") from None
        reader, writer = os.pipe()
        try:
            between = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if between == 0:
            self._fork_again(job, writer)
            os.close(reader)
            os.close(writer)
            self._socket.close()
            os.close(self._words)
            return job
        os.close(writer)
        pid = os.read(reader, 32)
        os.close(reader)
        os.waitpid(between, 0)  # from here on its child is the runner's
        if not pid:
            raise Declined("failed")
        self.say(f"took {token} {int(pid)}")
        return None

    @staticmethod
    def _fork_again(job: Taken, writer: int) -> None:
        """Fork the process that can be the task, and end. Returns in the child."""
        try:
            os.setpgid(0, job.group)
            pid = os.fork()
            if pid == 0:
                return
            os.write(writer, str(pid).encode())
        except BaseException:  # noqa: S110  # whatever happens, this process is none that serves
            pass
        os._exit(0)


def take_over(job: Taken, streams: Sequence[Form], runner: int) -> None:
    """Wait for the verdict, and take over the task's descriptors and settings. Ends without the verdict."""
    if job.leads:
        os.setpgid(0, 0)
    try:
        if os.read(job.fds[1], 1) != GO:
            os._exit(0)
    except OSError:
        os._exit(0)
    if job.dies:
        _die_with_parent(runner)
    os.fchdir(job.fds[2])
    for number in range(3):
        os.dup2(job.fds[3 + number], number)
    for fd in job.fds:
        os.close(fd)
    os.umask(job.umask)
    _take_limits(job)
    _take_signals(job)
    _take_environment(job)
    _seed()
    unbuffered = job.unbuffered or bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        made = stream(number, streams[number], unbuffered)
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def _die_with_parent(runner: int) -> None:
    """Have the kernel kill this process when the step runner ends, as each task of a step without a cgroup."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(_signal.SIGKILL), 0, 0, 0)
    if os.getppid() != runner:
        os._exit(0)


def _take_limits(job: Taken) -> None:
    """Set CPUs, limits and priority, each as far as the user may."""
    import resource

    try:
        os.sched_setaffinity(0, job.cpus)
    except (OSError, ValueError):
        pass  # the step's cpuset has changed meanwhile
    for number, soft, hard in job.limits:
        try:
            if resource.getrlimit(number) != (soft, hard):
                resource.setrlimit(number, (soft, hard))
        except (OSError, ValueError):
            pass  # a plugin has raised it, as root
    try:
        if os.getpriority(os.PRIO_PROCESS, 0) != job.nice:
            os.setpriority(os.PRIO_PROCESS, 0, job.nice)
    except OSError:
        pass  # likewise


def _take_signals(job: Taken) -> None:
    for number in job.ignored:
        if number not in _KEPT_BY_PYTHON:
            try:
                _signal.signal(number, _signal.SIG_IGN)
            except (OSError, ValueError):
                pass  # libc's own, or SIGKILL
    _signal.pthread_sigmask(_signal.SIG_SETMASK, job.blocked)


def _take_environment(job: Taken) -> None:
    wanted = job.environment
    if wanted.get(b"SLURM_TASK_PID") == str(job.pid).encode():
        wanted[b"SLURM_TASK_PID"] = str(os.getpid()).encode()
    zone = os.environb.get(b"TZ")
    for name in list(os.environb):
        if name not in wanted:
            del os.environb[name]
    for name, value in wanted.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
    if os.environb.get(b"TZ") != zone:
        import time

        time.tzset()


def _seed() -> None:
    """Give the task random numbers of its own."""
    for name in ("random", "numpy.random"):
        seed = getattr(sys.modules.get(name), "seed", None)
        if seed is not None:
            seed()


def stream(number: int, form: Form, unbuffered: bool) -> TextIO:
    """Return a standard stream as a new interpreter makes it."""
    import io

    encoding, errors = form
    raw = open(number, "rb" if number == 0 else "wb", 0 if unbuffered and number else -1, closefd=False)  # noqa: SIM115
    bottom = getattr(raw, "raw", raw)
    bottom.name = ("<stdin>", "<stdout>", "<stderr>")[number]  # type: ignore[misc]  # as C sets it
    by_line = not unbuffered and (number == 2 or bottom.isatty())
    made = io.TextIOWrapper(
        raw,
        encoding=encoding,
        errors=errors,
        newline="\n" if number else None,
        line_buffering=by_line,
        write_through=unbuffered,
    )
    made.mode = "w" if number else "r"  # type: ignore[misc]  # as C sets it
    return made


def run(job: Taken) -> None:
    """Run the task's program in a new module __main__, and end like Python with what the program raises."""
    own = sys._getframe().f_code.co_filename
    module = type(sys)("__main__")
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = module
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = job.words
    try:
        _run(job, module)
    except SystemExit:
        raise
    except BaseException as error:
        trail = error.__traceback__
        while trail is not None and trail.tb_frame.f_code.co_filename == own:
            trail = trail.tb_next  # the program's own frames only
        error.__traceback__ = trail
        sys.excepthook(type(error), error, trail)
        sys.excepthook = lambda *_: None
        raise


def _run(job: Taken, module: ModuleType) -> None:
    safe = getattr(sys.flags, "safe_path", False)
    if job.kind == "-m":
        import runpy

        sys.argv[:] = ["-m", *job.rest[1:]]
        if not safe:
            sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(job.rest[0])  # type: ignore[attr-defined]  # what -m calls
        return
    if job.kind == "-c":
        sys.argv[:] = ["-c", *job.rest[1:]]
        if not safe:
            sys.path.insert(0, "")
        exec(compile(job.rest[0] + "\n", "<string>", "exec"), module.__dict__)  # noqa: S102
        return
    sys.argv[:] = job.rest
    _run_file(job.rest[0], module, safe, job.words[0])


def _run_file(script: str, module: ModuleType, safe: bool, name: str) -> None:
    import pkgutil

    path = script if os.path.isabs(script) else os.path.join(os.getcwd(), script)
    if pkgutil.get_importer(path) is not None:  # a directory or an archive, with a __main__.py
        import runpy

        sys.path.insert(0, path)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    if not safe:
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        print(
            f"{name}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    from importlib.machinery import SourceFileLoader

    with file:
        code = pkgutil.read_code(file)
        if code is None:
            file.seek(0)
            code = compile(file.read(), path, "exec")
    module.__dict__.update(__file__=path, __cached__=None)
    module.__loader__ = SourceFileLoader("__main__", path)
    exec(code, module.__dict__)  # noqa: S102


def main() -> None:
    """Import the modules, serve, and be a task."""
    socket, words, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
    for fd in (socket, words):
        os.set_inheritable(fd, False)
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this file's
    warm = Warm(socket, words)
    import pkgutil  # noqa: F401  # before the modules: what a task needs is not their choice
    import resource  # noqa: F401
    import runpy  # noqa: F401

    warm.import_all(names)
    warm.say("ready")
    runner = os.getppid()
    job = warm.serve()
    streams = warm.streams
    del warm
    take_over(job, streams, runner)
    run(job)


if __name__ == "__main__":
    main()
