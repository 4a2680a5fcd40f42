"""`nodectl bulk`: run many short commands as tasks of a single step, with the names and habits of GNU parallel.

The command's process reads the sources of commands, has the step run the commands, prints their output, and remembers
which have ended (nodectl/bulk). Exit status: the number of failed commands, 101 for more than a hundred, 255
where bulk itself failed; --halt has its own; 128 plus the signal's number where a signal ended the command.
"""

import os
import signal
import sys
from typing import TYPE_CHECKING

from nodectl.bulk import joblog, outputs, printing, sources, usage
from nodectl.bulk.commands import Again, Commands, line_maker
from nodectl.bulk.conductor import COMMANDS_ENDED, Conductor
from nodectl.bulk.options import NAMES, BulkParser
from nodectl.bulk.progress import Progress
from nodectl.bulk.rules import Rules
from nodectl.bulk.shell import Programs, users_shell
from nodectl.bulk.template import Template
from nodectl.cli import run
from nodectl.client import text_alone
from nodectl.client.advice import refuse
from nodectl.client.command import BadOption, BadUsage, Failed, complain
from nodectl.client.launch_request import job_environment
from nodectl.client.option_lines import columns
from nodectl.client.session import Session
from nodectl.client.srun.options import IGNORED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from nodectl.client.command import GlobalOptions
    from nodectl.client.local_spank import LocalStack
    from nodectl.client.run_options import Parsed

_WENT_WRONG = 255
_NOBODY_READS = 141
_LONGEST_NAME = 64
_MANY = 512  # slots of -j0 in a cluster
_TASKS = ("SLURM_NTASKS", "SLURM_NPROCS")
_MOST_TASKS = 1_000_000
_PLACES = ("/tmp", "/var/tmp", ".")


def main(settings: "GlobalOptions", words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    run.standard_descriptors()
    _hear_interrupts()
    session = None
    text = text_alone.asked(BulkParser(), words, settings.config)
    try:
        if text is None:
            run.begin_cluster(settings, words, BulkParser)
        start_private = text is None or text.has_plugins()
        session = Session(settings, start_private=start_private, private=run.from_first_execution())
        return _bulk(session, words)
    except Failed as error:
        if session is None and text is not None:
            print(BulkParser().help(columns()))
            return 0
        refuse(error)
        if error.status > 1:  # a signal arrived while the step waited for its turn
            return error.status
    except BadOption as error:
        refuse(error)
        if isinstance(error, BadUsage):
            print("Try 'nodectl bulk --help' for more information.", file=sys.stderr)
    except BrokenPipeError:
        return _NOBODY_READS
    finally:
        if session is not None:
            session.close()
    return _WENT_WRONG


def _hear_interrupts() -> None:
    """Handle SIGINT and SIGQUIT even if ignored, as GNU parallel does.

    A shell without job control lets background commands ignore both signals; an interrupted script would then leave its
    bulk behind, with its CPUs. SIGHUP stays as nohup(1) has set it.
    """
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _bulk(session: Session, words: list[str]) -> int:
    hello: Any = session.call("Hello")
    local = run.local_stack(session, hello, words)
    try:
        if local:
            local.presets()
        parser = BulkParser(local.options() if local else ())
        parsed = parser.parse(words)
        parsed.of_cluster = "cluster" in hello
        parsed.values.pop(IGNORED, None)
        if parsed.values.pop("help", False):
            print(parser.help(columns()))
            return 0
        for warning in hello["warnings"]:
            complain(str(warning))
        return Bulk(session, local, parsed, hello.get("cluster")).status()
    finally:
        if local:
            local.close()


class Bulk:
    """A run of the command, made of the parsed options. Raises Failed, BadOption, BrokenPipeError."""

    def __init__(
        self, session: Session, local: "LocalStack | None", parsed: "Parsed", cluster: "Mapping[str, int] | None" = None
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._local = local
        self._parsed = parsed
        self._wants: dict[str, Any] = {name: parsed.values.pop(name) for name in NAMES if name in parsed.values}
        self._mark = f"_slot{os.urandom(6).hex()}_"
        words, given = sources.split(parsed.argv, self._wants.get("arg_file", ()))
        if any(source.file == sources.STDIN for source in given) and os.isatty(0):
            print("nodectl: values come from this terminal, one a line; Ctrl-D ends them", file=sys.stderr)
        parsed.argv = words or ["bulk"]
        parsed.values.setdefault("name", os.path.basename(parsed.argv[0].split(" ")[0])[:_LONGEST_NAME] or "bulk")
        if "{%}" in os.path.dirname(self._wants.get("results", "")):  # directories are made before a command has a slot
            raise BadOption("--results: {%} names files, and no directories")
        self._log_path = str(self._wants.get("joblog", ""))
        self._log: joblog.JobLog | None = None
        self._known = self._read_log()
        self._total: int | None = None
        self._has_slot = False
        self._names: list[str] = []
        self._values, self._layout = dict(parsed.values), parsed.layout
        self.commands = self._again() if self._wants.get("retry_failed") else self._made(words, given)

    # The commands to run.

    def _read_log(self) -> joblog.Known | None:
        wants = self._wants
        if not wants.keys() & {"resume", "resume_failed", "retry_failed"}:
            return None
        if not self._log_path:
            raise BadOption("--resume, --resume-failed and --retry-failed need --joblog")
        path = self._log_path.removeprefix("+")
        if "retry_failed" in wants and not os.path.exists(path):
            raise Failed(f"joblog {path}: No such file or directory", 255)
        if "dry_run" not in wants:  # lock the log before reading it: then no other bulk adds lines
            self._log = joblog.JobLog(path, keep=True)
        return joblog.read(path, lines="retry_failed" in wants)

    def _again(self) -> Again:
        lines = self._known.lines if self._known else {}
        self._total = len(lines)
        return Again(lines)

    def _made(self, words: list[str], given: list[sources.Given]) -> Commands:
        wants = self._wants
        found = sources.Sources(
            given, self._reading(), per_command=wants.get("per_command", 1), linked="link" in wants
        )  # fmt: skip
        self._total = found.count()
        self._names = list(found.names)
        line, self._has_slot = line_maker(words, self._compiled, quoted="quote" in wants)
        known, passed_over = self._known, None
        if known is not None:
            well = "resume_failed" in wants

            def passed_over(number: int) -> bool:
                return known.has_ended(number, well=well)

        return Commands(found, line, passed_over, self._total)

    def _reading(self) -> sources.Reading:
        columns = self._wants.get("columns")
        header = self._wants.get("header")
        if header not in (None, ":"):
            raise BadOption("--header takes ':' only")
        if header and columns is None:
            columns = "\t"
        pattern = None
        if columns is not None:
            import re  # imported only with --colsep

            try:
                pattern = re.compile(columns)
            except re.error as error:
                raise BadOption(f"--colsep {columns!r}: {error}") from None
        return sources.Reading(
            self._wants.get("delimiter", b"\n"), pattern, header=bool(header), nonempty="nonempty" in self._wants
        )

    def _compiled(self, text: str, quoting: bool) -> Template:
        names = {name: index for index, name in enumerate(self._names)}
        return Template(text, mark=self._wants.get("mark", "{}"), slot=self._mark, names=names, quoting=quoting)

    # Running the commands.

    def status(self) -> int:
        """Run all commands. Return the exit status."""
        if "dry_run" in self._wants:
            return self._print_all()
        log = self._log
        if self._log_path and log is None:
            path = self._log_path.removeprefix("+")
            log = joblog.JobLog(path, keep=path != self._log_path)
        used = self._usage_log()
        progress = self._progress()
        self._session.hold_signals()  # from now on a signal ends the command only after its files are removed
        shown = self._outputs(progress)
        if log:
            log.before = (shown.settle, *((used.settle,) if used else ()))
        try:
            return self._run(log, used, progress, shown)
        finally:
            try:
                for one in (log, used):
                    if one:
                        one.close()
            finally:
                shown.close()

    def _usage_log(self) -> usage.UsageLog | None:
        path = str(self._wants.get("usage_log", ""))
        if not path:
            return None
        name = path.removeprefix("+")
        return usage.UsageLog(name, keep=name != path or self._known is not None)

    def _print_all(self) -> int:
        while not self.commands.over:
            command = self.commands.next()
            if command is None:
                self.commands.read()
                continue
            line = command.line.replace(self._mark, "1")
            printing.write(1, line.encode("utf-8", "surrogateescape") + b"\n")
        return 0

    def _run(
        self, log: joblog.JobLog | None, used: usage.UsageLog | None, progress: Progress, shown: outputs.Outputs
    ) -> int:
        parsed, rules = self._parsed, self._rules()
        parsed.verbose = max(parsed.verbose - 1, 0)
        conductor = Conductor(
            self.commands, rules, shown, log, progress, self._total or 0, used,
            gives_back=self._session.private is None,
        )  # fmt: skip
        if self._local:
            conductor.warned = self._local.warned
        step, signals = None, self._session.hold_signals()
        while conductor.wait_for_command(signals):
            if step is None:
                signals.end_if_any()
            step = self._step_of(conductor)
            if not conductor.gave_back:
                break
        if step is None:
            signals.end_if_any()
        tally, count = conductor.tally, self.commands.count - self.commands.passed
        if conductor.signal or (tally.failed and not conductor.halted):  # --halt has said it
            told = tally.words(count if self.commands.over else None)
            print(f"nodectl: {told}", file=sys.stderr)
        if conductor.signal and self._log_path:
            print("nodectl: the same command with --resume runs the others", file=sys.stderr)
        if conductor.signal:
            return 128 + conductor.signal
        if step and not conductor.halted and self._went_wrong(conductor, rules):
            if conductor.record is not None:
                complain(f"step {step.name}: {conductor.record['reason'] or 'commands were cut short'}")
            return _WENT_WRONG
        total = self._total or tally.done
        return rules.halt.exit_status(tally.failed, total, conductor.last, reached=conductor.halted)

    def _step_of(self, conductor: Conductor) -> run.Started:
        """Run a step for the available commands, from the start to the end. Raises Failed.

        While the step waits for its turn, this process goes on reading commands: the program that writes them may hold
        the resources the step waits for.
        """
        signals = self._session.hold_signals()
        signals.beside = self.commands.ahead()
        try:
            step = self._start(self._nodes_left())
        finally:
            signals.beside = None
        parsed = self._parsed
        programs = Programs(users_shell(os.environ), job_environment(parsed), str(parsed.values.get("cwd", ".")))
        conductor.run(step.events, step.signals, programs.argv)
        if conductor.record is None:
            step.ask_for_end()
        step.write_trace()
        return step

    @staticmethod
    def _went_wrong(conductor: Conductor, rules: Rules) -> bool:
        """Return True if the step itself failed, rather than the commands."""
        record = conductor.record
        if record is None or conductor.unfinished:
            return True
        blamed = conductor.tally.failed or rules.retries > 1  # blame commands, also commands that succeeded later
        return not blamed and record["state"] not in COMMANDS_ENDED

    def _start(self, left: int) -> run.Started:
        """Start the step, on `left` nodes unless 0. Raises Failed."""
        parsed = self._parsed
        parsed.values, parsed.layout = dict(self._values), self._layout  # each start removes some values
        nodes = str(left) if left else self._wants.get("nodes")
        if nodes is not None:
            parsed.layout = (*self._layout, "nodes")
            parsed.values["nodes"] = nodes
        if not parsed.values.setdefault("ntasks", self._slots(nodes or "", are_fewer=left > 0)):
            parsed.values["ntasks"] = self._as_many()
        try:
            return run.start(self._session, self._local, parsed, bulk=True)
        except Failed:
            if not self._cluster or not self._has_lost_more(left):
                raise
        return self._start(self._nodes_left())  # a node was lost while the step waited for its turn

    def _has_lost_more(self, left: int) -> bool:
        try:
            self._cluster = self._session.call("Hello")["cluster"]  # type: ignore[assignment]
        except Failed:
            return False
        return self._nodes_left() != left

    def _nodes_left(self) -> int:
        """Return how many nodes are left of a job after losses.

        Returns 0 if the job has lost none, or if the user's options choose the nodes.
        """
        lost = self._cluster.get("lost", 0) if self._cluster else 0
        if not self._cluster or not lost or "nodes" in self._wants or "nodelist" in self._parsed.values:
            return 0
        return max(1, self._cluster["nodes"] - lost)

    def _slots(self, nodes: str, *, are_fewer: bool) -> int:
        """Return the number of slots: inside a job the job's tasks, else the room for tasks on the user's CPUs.

        With `are_fewer` (the job has lost nodes) a job's tasks are limited by the room on the remaining nodes.
        """
        from nodectl.model.number import whole

        of_job = next((n for name in _TASKS if (n := whole(os.environ.get(name, ""), _MOST_TASKS))), 0)
        if of_job and not are_fewer:
            return of_job
        each = int(str(self._parsed.values.get("cpus_per_task", 1)))
        if self._parsed.of_cluster:
            from nodectl.client.cluster_gateway import slots

            found = slots(nodes, each)
            return min(of_job, found) if of_job else found
        return max(1, self._cpus() // each)

    def _cpus(self) -> int:
        """Return the CPUs that a job of this user may have. Our own may be fewer: the fence keeps logins on some."""
        nodes: Any = self._session.call("Nodes")["nodes"]
        config: Any = self._session.call("Config")["config"]
        cpus = int(nodes[0]["cpus"])
        if os.geteuid() != 0 and (most := int(config["max_cpus_per_user"])):
            of_core = -(-cpus // int(nodes[0]["cores"]))  # a job gets whole cores
            cpus = min(cpus, max(1, most - most % of_core))
        return cpus

    def _as_many(self) -> int:
        """Return the slots for -j0: a slot for each command.

        Limits are the known number of commands and the most tasks of a step.
        """
        most = _MANY
        if not self._parsed.of_cluster:
            config: Any = self._session.call("Config")["config"]
            most = int(config["max_tasks_per_node"])
        return max(1, most if self._total is None else min(most, self._total))

    def _rules(self) -> Rules:
        wants = self._wants
        halt = wants.get("halt")
        if halt is not None and halt.percent and self._total is None:
            raise BadOption("--halt with percent needs sources whose end is known: files or words")
        return Rules(
            retries=wants.get("retries", 1), timeout=wants.get("timeout", (0.0, False)), delay=wants.get("delay", 0.0),
            halt=halt, in_order="keep_order" in wants, by_line="by_line" in wants,
            slot_mark=self._mark if self._marks_slots() else "",
        )  # fmt: skip

    def _marks_slots(self) -> bool:
        return self._has_slot or "{%}" in str(self._wants.get("results", ""))

    def _progress(self) -> Progress:
        shown = bool(self._wants.keys() & {"bar", "eta", "progress"}) and os.isatty(2)
        return Progress(2 if shown else None, self._total, bar="bar" in self._wants)

    def _outputs(self, progress: Progress) -> outputs.Outputs:
        wants = self._wants
        text = wants.get("tagstring", "{}" if "tag" in wants else None)
        style = outputs.Style(
            say=self._parsed.verbose > 0,
            files="files" in wants,
            by_line="by_line" in wants,
            tag=None if text is None else self._compiled(text, False).line,
            slot_mark=self._mark,
            hide=progress.hide,
        )
        if "results" in wants:
            return outputs.Results(style, self._compiled(wants["results"], False), self._names)
        if "ungroup" in wants:
            return outputs.Outputs(style)
        return outputs.Private(style, self._places())

    def _places(self) -> list[str]:
        """Return directories for the outputs of commands, except directories private to the step's container."""
        if "tmpdir" in self._wants:
            return [self._wants["tmpdir"]]
        if self._parsed.of_cluster:
            return [".", os.environ.get("HOME", "")]  # other nodes see no /tmp of this one
        config: Any = self._session.call("Config")["config"]
        private = config["container_dirs"] if config["job_container_type"] != "job_container/none" else ()
        wanted = [place for place in (os.environ.get("TMPDIR", ""), *_PLACES, os.environ.get("HOME", "")) if place]
        within = [f"{directory.rstrip('/')}/" for directory in private]
        return [place for place in wanted if not f"{os.path.realpath(place)}/".startswith(tuple(within))] or ["."]
