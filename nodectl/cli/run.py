"""`nodectl run`: ask for a step, pass signals on, tell what became of it, end as it ended.

Lean: this is paid at every step. The step's streams are this process's own descriptors, so nothing of its output
passes through here; what comes over the control connection are events. Exit status: as srun's, the highest exit code
of the tasks, 128 + signal for a signal, 1 when the step could not be run.
"""

import _signal
import posix as os  # the half in C: the other one is a millisecond of each step
import select
import sys
import time

from nodectl.client.command import BadOption, BadUsage, Failed, Program, complain, environ, is_same_file
from nodectl.client.session import REEXECUTED, Events, Session
from nodectl.wire import framing, lean_json
from nodectl.wire.names import NODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.client.command import GlobalOptions
    from nodectl.client.local_spank import LocalStack
    from nodectl.client.run_options import Parsed
    from nodectl.client.session import PrivateNode

FORWARDED = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2)
_MOST_COLUMNS = 99_999
_LONGEST_WISH = 128 << 10  # bytes; a longer one is looked at when it is launched
_LAST_JOB = 2**32 - 1
_FIRST_SPECIAL_STEP = 0xFFFF_FFF0  # batch, extern and so on
_QUICK = 1.0  # seconds between SIGINTs that together mean: end it
_UNRECORDED = "its step runner and the service have gone; what became of it will be recorded when the service starts"


def main(settings: "GlobalOptions", words: list[str]) -> int:
    """The whole command. Returns the exit status."""
    standard_descriptors()
    session = None
    try:
        session = Session(settings, private=from_first_execution())
        status = _run(session, words)
    except Failed as error:
        complain(str(error))
        status = error.status
    except BadOption as error:
        complain(str(error))
        if isinstance(error, BadUsage):
            print(Program.hint("run"), file=sys.stderr)
        status = error.status
    finally:
        if session is not None:
            session.close()
    return status


def from_first_execution() -> "PrivateNode | None":
    """What a first run left, where this is the second one."""
    if REEXECUTED not in environ():
        return None
    from nodectl.client import reexec  # only where native plugins are stacked

    return reexec.resume(environ().pop(REEXECUTED))  # now of os, which that needs


def standard_descriptors() -> None:
    """0, 1 and 2 must be something: they become the tasks' streams, and sockets opened later must not take their
    places.
    """
    while (fd := os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _run(session: Session, words: list[str]) -> int:
    session.ask("Hello")
    from nodectl.client import launch_request  # noqa: F401  # while the service answers
    from nodectl.client.run_options import Parser

    hello = session.call("Hello")
    local = local_stack(session, hello, words)
    try:
        if local:
            local.presets()
        parser = Parser(local.options() if local else ())
        parsed = parser.parse(words)
        if parsed.values.pop("help", False):
            print(parser.help(columns()))
            return 0
        if not parsed.argv:
            raise BadOption("No command given to execute.")
        for warning in hello["warnings"]:  # type: ignore[attr-defined]
            complain(str(warning))
        step = start(session, local, parsed)
        watch = Watch(step.events, step.name, str(hello["node"]), verbose=parsed.verbose)
        watch.warned = local.warned if local else set()
        record = watch.until_end() or step.ask_for_end()
        step.write_trace()
        return int(record["exit_status"]) if record else 1  # type: ignore[call-overload]
    finally:
        if local:
            local.close()


class Started:
    """A step that was launched: its events, its name, and what is asked of the service when it has ended."""

    __slots__ = ("_numbers", "_session", "_trace", "events", "name")

    def __init__(self, session: Session, numbers: tuple[int, int], events: "Events", trace: object) -> None:
        self._session = session
        self._numbers = numbers
        self._trace = trace
        self.events = events
        self.name = f"{numbers[0]}.{numbers[1]}"

    def ask_for_end(self) -> "Mapping[str, object] | None":
        """Its record, where its runner has gone without a word; None where nobody has one yet."""
        job, step = self._numbers
        try:
            record: Mapping[str, object] = self._session.call("Wait", job=job, step=step)["record"]  # type: ignore[assignment]
        except Failed:
            complain(f"step {self.name}: {_UNRECORDED}")
            return None
        complain(f"step {self.name}: {record['reason']}")
        return record

    def write_trace(self) -> None:
        """--trace, when it has ended."""
        if isinstance(self._trace, str):
            from nodectl.client import trace_lines  # paid where it is asked for

            trace_lines.write(self._session, self._trace, *self._numbers)


def start(session: Session, local: "LocalStack | None", parsed: "Parsed", **beyond: object) -> Started:
    """Launches what was parsed, and what of the request is `beyond` that, with the plugins' local hooks, when its turn
    has come. Raises Failed.
    """
    from nodectl.client.launch_request import job_environment, make_request

    trace = parsed.values.pop("trace", None)
    of_job = {name: parsed.values.pop(name) for name in parsed.job if name in parsed.values}
    patience: int | None = of_job.pop("immediate", None)  # type: ignore[assignment]  # what its row reads
    request = make_request(parsed) | beyond
    surrounding = session.private is None and _surrounding_job(request, session.path)
    if of_job and "jobid" not in request:
        request["job"] = _turn(session, request, parsed, of_job, patience)
    elif "signal" in of_job:
        raise BadOption("--signal is of a job, and this is a step of one: give it to that job")
    if local:
        _through_local_hooks(session, local, request, parsed, patience)
    request["environment"] = job_environment(parsed)
    job, step, events = _launched(session, request, patience, surrounding)
    return Started(session, (job, step), events, trace)


def _surrounding_job(request: dict[str, object], socket: str) -> bool:
    """Makes it a step of the job in which this command was typed, and says so. nodectl's jobs name themselves twice:
    the SLURM_JOB_ID of a Slurm on the same machine is no job of nodectl's. Nor is it one of another service, with
    numbers of its own, to which --socket or --config led.
    """
    here = environ().get("NODECTL_JOB_ID", "")
    if not here or "jobid" in request or here != environ().get("SLURM_JOB_ID"):
        return False
    of_job = environ().get("NODECTL_SOCKET", socket)
    if of_job != socket and not _is_same(of_job, socket):
        return False
    from nodectl.model.number import whole

    job = whole(here, _LAST_JOB)
    if not job:
        return False
    request["jobid"] = job
    layout: dict[str, str] = request.setdefault("layout", {})  # type: ignore[assignment]  # make_request's
    within = whole(environ().get("SLURM_STEP_ID", ""), _LAST_JOB)
    if within is not None and within < _FIRST_SPECIAL_STEP and not layout.keys() & {"exact", "exclusive", "overlap"}:
        layout["overlap"] = "1"  # the step that waits for this one has the CPUs
    return True


def _is_same(path: str, other: str) -> bool:
    try:
        return is_same_file(path, other)
    except OSError:
        return False


def _turn(
    session: Session, request: dict[str, object], parsed: "Parsed", of_job: dict[str, object], patience: int | None,
    number: int = 0,
) -> int:  # fmt: skip
    """A job for this request, when its turn has come. Raises Failed."""
    from nodectl.client import waiting
    from nodectl.client.launch_request import job_environment

    wanted = {**request, "environment": waiting.told({"environment": job_environment(parsed)})}
    wanted |= {"job": number} if number else {}
    return waiting.job(session, wanted, of_job, patience)


def _launched(
    session: Session, request: dict[str, object], patience: int | None, surrounding: bool
) -> "tuple[int, int, Events]":
    """Launch, at once or when its turn has come. Raises Failed."""
    try:
        return session.launch(request)
    except Failed as failed:
        if failed.name == f"{NODE}.Busy":
            from nodectl.client import waiting  # only where something is waited for

            return waiting.launch(session, request, failed, patience)
        if surrounding and failed.name == f"{NODE}.NoSuchStep":
            raise Failed(f"{failed}; unset NODECTL_JOB_ID to run a job of its own") from None
        raise


def local_stack(session: Session, hello: "Mapping[str, object]", words: list[str]) -> "LocalStack | None":
    """The SPANK plugins in this process; nothing of it is imported when there are none."""
    if not hello["stack"]:
        return None
    from nodectl.client.local_spank import LocalStack
    from nodectl.spank.plugin_file import is_native

    if any(is_native(row["path"]) and not row["missing"] for row in hello["stack"]):  # type: ignore[attr-defined]
        from nodectl.client import reexec

        reexec.with_native_host(session.private)
    return LocalStack(hello, verbose=sum(_loudness(word) for word in words))


def _loudness(word: str) -> int:
    """How often a word says -v; the plugins are there before the options are read."""
    return word.count("v") if word.strip("v") == "-" else int(word == "--verbose")


def columns() -> int:
    """The width of help texts, as other commands take it."""
    from nodectl.model.number import whole

    return whole(environ().get("COLUMNS", ""), _MOST_COLUMNS) or 80


def _through_local_hooks(
    session: Session, local: "LocalStack", request: dict[str, object], parsed: "Parsed", patience: int | None
) -> None:
    """init_post_opt, then a job id, then local_user_init: the plugins' last chance to refuse before anything is
    launched. What the service would refuse it refuses before there is a job.
    """
    local.after_options()
    reserved = _reserved(session, request, parsed, patience)
    request["job"] = reserved["job"]
    if "jobid" in request:
        del request["jobid"]
        request["step"] = reserved["step"]
    request["options"] = local.given()
    local.before_launch(request, reserved)
    if local.job_control():
        request["job_control"] = local.job_control()


def _reserved(
    session: Session, request: dict[str, object], parsed: "Parsed", patience: int | None
) -> "Mapping[str, object]":
    """The numbers of a step to come; of a job that may start."""
    from nodectl.client.launch_request import job_environment

    if "job" in request:
        return {"job": request["job"], "step": 0}
    told = {name: value for name, value in job_environment(parsed).items() if name.startswith(("SLURM_", "SRUN_"))}
    wanted = {**request, "argv": parsed.argv[:1], "environment": told}
    of_job = {"jobid": request["jobid"]} if "jobid" in request else {}
    if len(lean_json.dumps(wanted)) < _LONGEST_WISH:
        of_job["request"] = wanted
    try:
        reserved = session.call("Reserve", (), **of_job)
    except Failed as failed:
        if failed.name != f"{NODE}.Busy" or "jobid" in of_job:
            raise
        return {"job": _turn(session, request, parsed, {}, patience, failed.job), "step": 0}
    return reserved


class Watch:
    """The step's events and this process's signals, until one of them is the end."""

    def __init__(self, events: "Events", name: str, node: str, *, verbose: int) -> None:
        self._events = events
        self._name = name
        self._node = node
        self._verbose = verbose
        self.warned: set[str] = set()
        self._interrupted = -_QUICK
        self._interrupts = 0  # each within a second of the one before
        self._record: Mapping[str, object] | None = None
        self._signals, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in FORWARDED:
            if _signal.getsignal(number) != _signal.SIG_IGN:  # nohup's wish is ours
                _signal.signal(number, lambda *_: None)
        # While the step starts, and not when it says something: nodectl may have been replaced by then.
        from nodectl.messages import is_news

        self._is_news = is_news

    def until_end(self) -> "Mapping[str, object] | None":
        """The step's record; None when the step runner went away without one."""
        poll = select.poll()
        poll.register(self._events.fd, select.POLLIN)
        poll.register(self._signals, select.POLLIN)
        while self._record is None:
            ready = {fd for fd, _ in poll.poll()}
            if self._signals in ready:
                for number in os.read(self._signals, 512):
                    self._pass_on(number)
            if self._events.fd in ready and not self._read():
                break
        return self._record

    def _read(self) -> bool:
        try:
            messages, alive = self._events.read()
            for message in messages:
                event = message.get("parameters", {}).get("event", {})  # type: ignore[attr-defined]
                self._tell(event)
        except (OSError, framing.BrokenWire):
            return False
        return alive

    def _tell(self, event: "Mapping[str, object]") -> None:
        kind = event.get("event")
        if kind == "message":
            if self._is_news(str(event["text"]), self.warned):
                _print(str(event["text"]))
        elif kind == "exit" and (event["status"] or event.get("out_of_memory")):
            ending = "Out Of Memory" if event.get("out_of_memory") else _ending(int(str(event["status"])))
            _print(f"nodectl: error: {self._node}: {_tasks(event['tasks'])}: {ending}")
        elif kind == "start" and self._verbose:
            _print(f"nodectl: step {self._name}: tasks running, pids {event['pids']}")
        elif kind == "end":
            self._record = event["record"]  # type: ignore[assignment]

    def _pass_on(self, number: int) -> None:
        if number == _signal.SIGINT:
            self._interrupt()
        elif number in FORWARDED:
            self._call("Signal", signal=number, forwarded=True)

    def _interrupt(self) -> None:
        """Ctrl-C: the first is passed on, a second within a second ends the step, a third kills it without waiting."""
        now = time.monotonic()
        if now - self._interrupted >= _QUICK:
            self._interrupts = 0
        self._interrupted = now
        self._interrupts += 1
        if self._interrupts == 1:
            _print(f"nodectl: interrupt sent to step {self._name} (one more within 1 sec to end it)")
            self._call("Signal", signal=int(_signal.SIGINT), forwarded=True)
        elif self._interrupts == 2:
            _print(f"nodectl: forcing termination of step {self._name} (one more within 1 sec to kill it)")
            self._call("End")
        else:
            _print(f"nodectl: killing step {self._name}")
            self._call("Signal", signal=int(_signal.SIGKILL), forwarded=True)

    def _call(self, method: str, **parameters: object) -> None:
        try:
            self._events.call(method, **parameters)
        except OSError:
            return  # it has ended: its last event is on the way


def _print(line: str) -> None:
    try:
        os.write(2, Program.said(line).encode("utf-8", "surrogateescape") + b"\n")
    except OSError:
        return  # nobody reads our errors; the step is not to suffer from it


def _tasks(ranks: object) -> str:
    """ "task 3", "tasks 0-2,5"."""
    numbers = sorted(ranks)  # type: ignore[call-overload]
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    return f"task{'s' if len(numbers) > 1 else ''} {text}"


def _ending(status: int) -> str:
    """srun's words for a wait status."""
    if os.WIFSIGNALED(status):
        core = " (core dumped)" if os.WCOREDUMP(status) else ""
        return f"{_signal.strsignal(os.WTERMSIG(status))}{core}"
    return f"Exited with exit code {os.WEXITSTATUS(status)}"
