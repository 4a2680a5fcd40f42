"""The common part of `nodectl submit` and `nodectl alloc`: SPANK's allocator context, the command line, the request."""

import os
import sys

from nodectl.client.advice import refuse
from nodectl.client.command import BadOption, BadUsage, Failed, Program, complain
from nodectl.client.job_parser import JobParser, ignored, job_options, outside_of_jobs
from nodectl.client.launch_request import TOLD, job_environment, make_request, own_environment
from nodectl.client.option_lines import columns
from nodectl.client.run_options import Parsed
from nodectl.client.session import REEXECUTED, Session
from nodectl.client.srun import wording
from nodectl.client.srun.manners import settle
from nodectl.spank import S_CTX_ALLOCATOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nodectl.client.command import GlobalOptions
    from nodectl.client.local_spank import LocalStack


class JobCommand:
    """A run of the command `name` with the given words. Raises Failed, BadOption."""

    def __init__(self, name: str, session: Session, words: "Sequence[str]") -> None:
        self.session = session
        self._name = name
        self._words = words
        self.hello = session.call("Hello")
        self._local: LocalStack | None = None
        if self.hello["stack"]:
            from nodectl.client.local_spank import open_stack  # nothing of SPANK is imported without plugins

            self._local = open_stack(session, self.hello, words, S_CTX_ALLOCATOR)
        self.parser = JobParser(name, self._local.options() if self._local else ())
        self.parsed = Parsed()

    def arguments(self) -> "tuple[list[str], object]":
        """Return the words after the options and the command of --wrap, without telling plugins about options."""
        first = self._dry()
        return first.argv, first.values.get("wrap")

    def take_options_behind_words(self) -> None:
        """Move words without a dash behind later options: this command runs no program with options."""
        argv = [] if "--" in self._words else self._dry().argv
        while any(word.startswith("-") for word in argv[1:]):
            self._words = [*self._words[: -len(argv)], *argv[1:], argv[0]]
            argv = self._dry().argv

    def wants_help(self) -> bool:
        """Return True where --help was given."""
        return bool(self._dry().values.get("help"))

    def _dry(self) -> Parsed:
        return JobParser(self._name, self._local.options() if self._local else (), dry=True).parse(self._words)

    def read(self, lines: "Iterable[tuple[str, Sequence[str]]]" = ()) -> bool:
        """Read a script's option lines, the variables and the command line. Return False after printing --help."""
        if self._local:
            self._local.presets()
        for where, words in lines:
            try:
                self.parser.parse_into(self.parsed, words)
            except BadOption as error:
                raise type(error)(f"{where}: {error}") from None
            if self.parsed.argv:
                raise BadOption(f"{where}: {self.parsed.argv[0]!r} is no option")
        self.parser.parse_into(self.parsed, self.parser.variables(os.environ))
        self.parser.parse_into(self.parsed, self._words)
        if self.parsed.values.pop("help", False):
            print(self.parser.help(columns()))
            return False
        for warning in self.hello["warnings"]:  # type: ignore[attr-defined]
            complain(str(warning))
        Program.quiet = bool(self.parsed.values.pop("quiet", False))
        if (names := ignored(self.parsed)) and self.parsed.verbose:
            options = ", ".join(f"--{name}" for name in names)
            print(f"{Program.name}: without effect on one machine: {options}", file=sys.stderr)
        if self._local:
            self._local.after_options()
        return True

    def request(self) -> "tuple[dict[str, object], dict[str, object]]":
        """Return the request and JobOptions, from all parsed options left."""
        surroundings = outside_of_jobs(own_environment())
        settle(self.parsed)
        options = job_options(self.parsed)
        if "dependency" in options:
            from nodectl.client.job_name import in_dependency  # few jobs wait for others

            options["dependency"] = in_dependency(self.session, str(options["dependency"]))
        self.parsed.told.update((TOLD[name], str(options[name])) for name in TOLD if name in options)
        environment = job_environment(self.parsed, self.parsed.environment or surroundings)
        stdin = self.parsed.values.get("stdin")
        request = make_request(self.parsed, surroundings)
        request.pop("stdin", None)
        if stdin is not None:
            request["stdin"] = stdin
        request["environment"] = environment
        if self._local:
            environment.update(self._local.for_commands_within())
            request["options"] = self._local.given()
            if self._local.job_control():
                request["job_control"] = self._local.job_control()
        return request, options

    def close(self) -> None:
        """End the plugins."""
        if self._local:
            self._local.close()


def run_command(
    name: str, settings: "GlobalOptions", words: "Sequence[str]", act: "Callable[[JobCommand], int]"
) -> int:
    """Open the session, run `act`, print failures and close; return the exit status."""
    session = command = None
    try:
        again = os.environ.pop(REEXECUTED, None)
        private = None
        if again is not None:
            from nodectl.client import reexec

            private = reexec.resume(again)
        session = Session(settings, start_private=False, private=private)
        command = JobCommand(name, session, words)
        return act(command)
    except Failed as error:
        if session is None and any(word in ("-h", "--help") for word in words):
            print(JobParser(name).help(columns()))  # without a service, plugins are unknown
            return 0
        refuse(error, wording.refusal(error, wording.ALLOCATE) if Program.is_slurms() else "")
        return error.status
    except BadOption as error:
        refuse(error)
        if isinstance(error, BadUsage):
            print(Program.hint(name), file=sys.stderr)
        return error.status
    finally:
        if command is not None:
            command.close()
        if session is not None:
            session.close()
