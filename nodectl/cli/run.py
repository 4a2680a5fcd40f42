"""`nodectl run`: ask for a step, pass signals on, print the step's result, exit with the step's status.

Lean: every step pays for this module. The step's streams are this process's own descriptors, so that no output passes
through here; the control connection carries events. Exit status: as srun's, the highest exit code of the tasks, 128 +
signal for a signal, 1 when the step could not be run.
"""

import posix as os  # the half in C: the other one is a millisecond of each step
import sys

from nodectl.client.command import LAUNCHED, NO_PROGRAM, BadOption, BadUsage, Failed, Program, complain, environ
from nodectl.client.session import REEXECUTED, Events, Session
from nodectl.client.watch import Watch
from nodectl.model.wire.names import NODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from nodectl.client.command import GlobalOptions
    from nodectl.client.launched import Launched
    from nodectl.client.local_spank import LocalStack
    from nodectl.client.run_options import Option, Parsed, RunParser
    from nodectl.client.session import PrivateNode
    from nodectl.client.srun.manners import Manners
    from nodectl.client.text_alone import TextAlone

_TEXTS = ("-h", "help", "-V", "--version", "--usage", "list")  # endings of words by which a command may ask for a text
_UNRECORDED = "its step runner and the service have gone; what became of it will be recorded when the service starts"
_OF_CLUSTER = "the cluster has ended, or its agent here, and what ran with it"


def main(settings: "GlobalOptions", words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    standard_descriptors()
    session = text = None
    try:
        launched = from_quick_way()
        if launched is None:  # else the cluster exists, or existed when the step began
            text = _text(settings, words)
            if text is None:
                begin_cluster(settings, words)
        start_private = text is None or text.has_plugins()
        session = Session(settings, start_private=start_private, private=from_first_execution(), launched=launched)
        status = _run(session, words, settings.config, launched)
    except Failed as error:
        if session is None and text is not None:
            return _answer(text.parser, text.parsed, settings.config)
        _refuse(error, _refusal(error))
        status = _status(error)
    except BadOption as error:
        _refuse(error)
        if isinstance(error, BadUsage):
            print(Program.hint("run"), file=sys.stderr)
        status = _status(error)
    finally:
        if session is not None:
            session.close()
    return status


def _text(settings: "GlobalOptions", words: list[str]) -> "TextAlone | None":
    if not any(word.endswith(_TEXTS) for word in words):
        return None
    from nodectl.client import text_alone  # few commands ask for a text
    from nodectl.client.run_options import RunParser

    return text_alone.asked(RunParser(further=_further), words, settings.config)


def begin_cluster(settings: "GlobalOptions", words: list[str], parser: "type[RunParser] | None" = None) -> None:
    """Start the cluster, if this is the first command for several nodes in an allocation of Slurm's. Raises Failed."""
    if "SLURM_JOB_NODELIST" not in environ():
        return
    from nodectl.client import cluster_gateway  # only within an allocation

    if cluster_gateway.is_missing(settings):
        from nodectl.cli import several_nodes  # imported until the cluster exists
        from nodectl.client.run_options import RunParser

        cluster = several_nodes.installed()
        if cluster is None:
            from nodectl.client import advice
            from nodectl.model import features

            advice.ADVICE["number of nodes"] = features.is_missing("cluster")
            return
        if parser is None:
            cluster.begin(words, RunParser, further=_further)
        else:
            cluster.begin(words, parser)


def _refuse(error: "Failed | BadOption", reason: str = "") -> None:
    from nodectl.client.advice import refuse  # imported only if nothing is launched

    refuse(error, reason)


def _refusal(error: Failed) -> str:
    """Return why there is no step, in srun's words if the command was called srun."""
    if not Program.is_slurms():
        return str(error)
    from nodectl.client.srun import wording

    return wording.refusal(error, wording.CREATE if "NODECTL_JOB_ID" in environ() else wording.ALLOCATE)


def _answer(parser: "RunParser", parsed: "Parsed", configuration: "str | None") -> int:
    from nodectl.client.srun import help as help_texts

    return help_texts.answer(parser, parsed, configuration)


def _status(error: "Failed | BadOption") -> int:
    """Return the exit status for a command without a step; the user's variables may choose the status."""
    busy = isinstance(error, Failed) and error.name == f"{NODE}.Busy"
    variable = "SLURM_EXIT_IMMEDIATE" if busy else "SLURM_EXIT_ERROR"
    if variable not in environ():
        return error.status
    from nodectl.model.number import whole

    wanted = whole(environ()[variable], 255)
    return error.status if wanted is None else wanted


def from_first_execution() -> "PrivateNode | None":
    """Return the private node left by this command's first execution, None in the first execution."""
    if REEXECUTED not in environ():
        return None
    from nodectl.client import reexec  # only where native plugins are stacked

    return reexec.resume(environ().pop(REEXECUTED))  # `environ()` is os.environ now, as resume needs


def from_quick_way() -> "Launched | None":
    """Return the launch left by the C program before this process, None if the C program has not asked for a step."""
    if LAUNCHED not in environ():
        return None
    from nodectl.client import launched  # only where a step has something to say

    return launched.take()


def standard_descriptors() -> None:
    """Open 0, 1 and 2 on /dev/null where closed.

    They become the tasks' streams, and sockets opened later must not take their places.
    """
    while (fd := os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _run(session: Session, words: list[str], configuration: "str | None", launched: "Launched | None" = None) -> int:
    hello = _greeted(session, launched)
    from nodectl.client.run_options import RunParser

    local = local_stack(session, hello, words)
    try:
        if local:
            local.presets()
        parser = RunParser(local.options() if local else (), further=_further)
        parsed = _read(parser, words)
        parsed.of_cluster = "cluster" in hello
        if not parsed.wants_step:
            return _answer(parser, parsed, configuration)
        manners = _manners(parser, parsed)
        if not parsed.argv:
            raise BadOption(NO_PROGRAM, subject="program")
        for warning in hello["warnings"]:  # type: ignore[attr-defined]
            complain(str(warning))
        if manners is not None:
            from nodectl.client.srun import around  # few steps want anything before and behind them

            around.begin(manners, parsed, _copier(session, hello) if parsed.of_cluster else None)
            if manners.test_only:
                return around.tell_when(session, parsed)
        screen = None
        if "pty" in parsed.values:
            from nodectl.cli.run_terminal import StepTerminal  # paid with --pty

            screen = StepTerminal(session, parsed)
        stopped = _stopped(parsed) if manners is not None and manners.debugger_test else None
        step = start(session, local, parsed)
        watch = Watch(step, str(hello["node"]), verbose=parsed.verbose, manners=manners)
        watch.warned = local.warned if local else set()
        if stopped is not None:
            stopped(watch)
        record = (screen.until_end(watch) if screen else watch.until_end()) or step.ask_for_end()
        step.write_trace()
        if manners is not None:
            around.end(manners)
        return int(record["exit_status"]) if record else 1  # type: ignore[call-overload]
    finally:
        if local:
            local.close()


def _copier(session: Session, hello: "Mapping[str, Any]") -> "Callable[[str, str], None]":
    """Return the function for --bcast in a cluster, which copies a file to all nodes."""

    def copy(path: str, target: str) -> None:
        from nodectl.cli import several_nodes  # few steps copy their program

        several_nodes.needed().replace(session.path, hello["cluster"]["nodes"], path, target)

    return copy


def _greeted(session: Session, launched: "Launched | None") -> "Mapping[str, object]":
    """Return the service's reply to Hello."""
    if launched is None:
        session.ask("Hello")
    from nodectl.client import launch_request  # noqa: F401  # while the service answers

    return session.call("Hello") if launched is None else launched.hello


def _read(parser: "RunParser", words: list[str]) -> "Parsed":
    if ":" not in words:
        return parser.parse(words)
    from nodectl.client.srun import components  # few steps have several

    return components.read(parser, words)


def _further(known: "Mapping[str, Option]") -> "tuple[Option, ...]":
    from nodectl.client.srun import options  # few steps have one

    return options.further(known)


def _manners(parser: "RunParser", parsed: "Parsed") -> "Manners | None":
    """Add the options from variables. Return the rarely used options of the step, None for most steps."""
    if any(name.startswith(("SLURM_", "SRUN_")) for name in environ()):
        from nodectl.client.srun import variables

        variables.fill(parser, parsed, environ())
    if "by_variable" not in parsed.values and not any(name in parsed.values for name in parsed.further):
        return None
    from nodectl.client.srun import manners

    return manners.of(parsed, environ())


def _stopped(parsed: "Parsed") -> "Callable[[Watch], None]":
    from nodectl.client.srun import debugger  # few steps are debugged

    return debugger.stop_tasks(parsed)


class Started:
    """A launched step: events, name, number of tasks, and the session for questions after the end."""

    __slots__ = ("_numbers", "_of_cluster", "_session", "_trace", "events", "name", "ntasks", "signals")

    def __init__(
        self, session: Session, numbers: tuple[int, int], events: "Events", trace: object, ntasks: int, *,
        of_cluster: bool,
    ) -> None:  # fmt: skip
        self.ntasks = ntasks
        self._of_cluster = of_cluster
        self._session = session
        self._numbers = numbers
        self._trace = trace
        self.events = events
        self.signals = session.hold_signals()
        self.name = f"{numbers[0]}.{numbers[1]}"

    def ask_for_end(self) -> "Mapping[str, object] | None":
        """Return the record if the step runner disappeared without a report, None if the service has no record yet."""
        job, step = self._numbers
        try:
            record: Mapping[str, object] = self._session.call("Wait", job=job, step=step)["record"]  # type: ignore[assignment]
        except Failed:
            complain(f"step {self.name}: {_OF_CLUSTER if self._of_cluster else _UNRECORDED}")
            return None
        complain(f"step {self.name}: {record['reason']}")
        return record

    def write_trace(self) -> None:
        """Write the trace for --trace, after the end of the step."""
        if isinstance(self._trace, str):
            from nodectl.client import trace_lines  # paid where it is asked for

            trace_lines.write(self._session, self._trace, *self._numbers)


def start(session: Session, local: "LocalStack | None", parsed: "Parsed", **beyond: object) -> Started:
    """Launch the parsed command when the step's turn comes, with the plugins' local hooks. Raises Failed.

    `beyond`: further members of the request.
    """
    from nodectl.client.launch_request import TOLD, job_environment, look_for_mpi, make_request

    trace = parsed.values.pop("trace", None)
    of_job = {name: parsed.values.pop(name) for name in parsed.job if name in parsed.values}
    if "dependency" in of_job or isinstance(parsed.values.get("jobid"), str):
        _ask_for_newest(session, parsed.values, of_job)
    parsed.told.update((TOLD[name], str(of_job[name])) for name in TOLD if name in of_job)
    patience: int | None = of_job.pop("immediate", None)  # type: ignore[assignment]  # what its row reads
    request = make_request(parsed) | beyond
    ntasks = request["ntasks"]
    if parsed.of_cluster:
        from nodectl.client import cluster_gateway  # only within an allocation

        cluster_gateway.fit(request, parsed, patience)
    elif "exclusive" in request.get("layout", ()) and "ntasks" not in parsed.values:  # type: ignore[operator]
        from nodectl.client.reserving import fill_machine  # few have a machine to themselves

        fill_machine(session, request)
    if request["ntasks"] != ntasks:
        look_for_mpi(request)
    surrounding = session.private is None and "NODECTL_JOB_ID" in environ() and _in_a_job(request, session.path)
    if of_job and "jobid" not in request:
        from nodectl.client.reserving import turn

        request["job"] = turn(session, request, parsed, of_job, patience)
    elif "signal" in of_job:
        raise BadOption("--signal is of a job, and this is a step of one: give it to that job")
    if local:
        from nodectl.client.reserving import through_local_hooks  # only with plugins

        through_local_hooks(session, local, request, parsed, patience)
    request["environment"] = job_environment(parsed)
    if parsed.of_cluster:
        job, step, events = session.launch(request)  # if the step has to wait, the leader lets it wait
    else:
        job, step, events = _launched(session, request, patience, surrounding)
    return Started(session, (job, step), events, trace, int(str(request["ntasks"])), of_cluster=parsed.of_cluster)


def _ask_for_newest(session: Session, values: dict[str, object], of_job: dict[str, object]) -> None:
    """Put the numbers of jobs in the place of their names, such as last. Raises Failed."""
    from nodectl.client.job_name import in_dependency, names_of, number_of, one  # few name jobs so

    if "dependency" in of_job:
        of_job["dependency"] = in_dependency(session, str(of_job["dependency"]))
    if isinstance(name := values.get("jobid"), str):
        try:
            names = names_of(name, steps=False)
        except ValueError as error:
            raise BadOption(f"--jobid: {error}") from None
        values["jobid"] = number_of(session, str(one(session, names)))


def _in_a_job(request: dict[str, object], socket: str) -> bool:
    from nodectl.client.surrounding_job import join  # only for a command typed in a job

    return join(request, socket)


def _launched(
    session: Session, request: dict[str, object], patience: int | None, surrounding: bool
) -> "tuple[int, int, Events]":
    """Launch, at once or when the step's turn comes. Raises Failed."""
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
    """Return the SPANK plugins in this process, None without plugins; nothing of SPANK is imported then."""
    if not hello["stack"]:
        return None
    from nodectl.client.local_spank import open_stack

    return open_stack(session, hello, words)
