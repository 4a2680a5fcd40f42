"""The options of `nodectl run`: a table which makes the parser and the help.

The parser is written by hand, because argparse brings gettext and re, which take as long as a whole step. It follows
getopt_long(3), as srun has it: `-n4`, `-n 4`, `--ntasks=4`, `--ntasks 4`, bundled switches, abbreviations which are
unique among srun's options and nodectl's; the first word that is no option begins the program.
"""

from nodectl.client.command import BadOption, BadUsage, user_file
from nodectl.model.number import mebibytes, seconds, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from nodectl.client.job_options import Row
    from nodectl.spank import SpankOption

NO_ARGUMENT, ARGUMENT, MAYBE_ARGUMENT = 0, 1, 2
_MOST = 10**18 - 1  # more is a mistake
_ANSWERED = frozenset({"help", "usage", "version"})  # options by which a command asks for no step
_WITH_HELP = ("cpu_bind", "mem_bind", "gpu_bind", "hint", "gres")  # where the value "help" asks for a text


class Option:
    """A row of the table of options.

    `take(value)` returns the value to store under `dest`, or raises ValueError with the reason. With `many`, each use
    of the option adds to a list. `ours`: srun has no such option.
    """

    __slots__ = ("arginfo", "dest", "has_arg", "help", "long", "many", "ours", "short", "take")

    def __init__(  # the columns of the table
        self,
        long: str,
        short: str,
        arginfo: str,
        help: str,  # noqa: A002  # the column's name in every such table
        take: "Callable[[str], object]" = str,
        *,
        dest: str = "",
        has_arg: int = ARGUMENT,
        many: bool = False,
        ours: bool = False,
    ) -> None:
        self.long = long
        self.short = short
        self.arginfo = arginfo
        self.help = help
        self.take = take
        self.dest = dest or long.replace("-", "_")
        self.has_arg = has_arg
        self.many = many
        self.ours = ours


class PluginOption(Option):
    """A SPANK plugin's option.

    `take_argument(None)` stands for the option without an argument; `take_argument` raises BadOption. `preset` is the
    variable which sets the option without the command line.
    """

    __slots__ = ("preset", "take_argument")

    def __init__(self, option: "SpankOption", take: "Callable[[str | None], object]", preset: str) -> None:
        super().__init__(option.name, "", option.arginfo or "", option.usage, take, has_arg=option.has_arg)
        self.take_argument = take
        self.preset = preset


def positive(text: str) -> int:
    """Parse a whole number from 1."""
    number = whole(text, _MOST)
    if not number:
        raise ValueError(f'Invalid numeric value "{text if len(text) <= 20 else text[:20] + "..."}"')
    return number


def one_job(text: str) -> "int | str":
    """Parse one job: its number, or its other name, such as last or 7_3, for which the service is asked later."""
    job, underscore, _ = text.partition("_")
    return text if job == "last" or (underscore and job.isdecimal()) else positive(text)


def percent(text: str) -> int:
    """Parse CPU time in percent of a CPU: 150%, or 150; 0 for max."""
    return 0 if text == "max" else positive(text.removesuffix("%"))


def io_priority(text: str) -> int:
    """Parse a priority of input and output: 0 to 7, or idle, which is 8."""
    level = 8 if text == "idle" else whole(text, 7)
    if level is None:
        raise ValueError(f"Invalid priority {text[:20]!r}, 0 to 7 and idle are allowed")
    return level


def processes(text: str) -> int:
    """Parse a number of processes and threads; 0 for max."""
    return 0 if text == "max" else positive(text)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _task(text: str) -> int:
    number = whole(text or "0", _MOST)
    if number is None:
        raise ValueError(f'Invalid task "{text[:20]}"')
    return number


def _flag(text: str) -> bool:
    if text not in ("", "0", "1"):
        raise ValueError(f'Invalid value "{text[:20]}", only 0 and 1 are allowed')
    return text != "0"


OPTIONS = (
    Option("ntasks", "n", "N", "number of tasks (default 1)", positive),
    Option("cpus-per-task", "c", "N", "CPUs for each task (default 1)", positive),
    Option("chdir", "D", "DIR", "working directory of the tasks", user_file, dest="cwd"),
    Option("job-name", "J", "NAME", "name of the job", str, dest="name"),
    Option("jobid", "", "JOB", "a further step of this running job of yours", one_job),
    Option("time", "t", "TIME", "time limit: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S", seconds, dest="time_limit"),
    Option("mem", "", "SIZE", "memory of the step, in MiB or with K, M, G, T; 0 for all there is", mebibytes),
    Option("mem-per-cpu", "", "SIZE", "memory for each CPU asked for", mebibytes),
    Option("cpu-max", "", "PERCENT%", "most CPU time, in percent of one CPU: 150%", percent, ours=True),
    Option("cpu-weight", "", "N", "weight when jobs compete for CPU time, 1 to 10000 (default 100)", positive,
           ours=True),
    Option("io-max", "", "DISK:FIGURES", "most input and output of a disk, each second: /dev/vda:rbps=10M,wiops=100; "
           "rbps, wbps, riops, wiops; once for each disk", str, many=True, ours=True),
    Option("io-weight", "", "N", "weight when jobs compete for a disk, 1 to 10000 (default 100)", positive, ours=True),
    Option("io-priority", "", "LEVEL", "turn of the tasks' reads and writes at a disk: 0 (first) to 7, or idle, while "
           "no others want it", io_priority, ours=True),
    Option("pids-max", "", "N", "most processes and threads of the step", processes, ours=True),
    Option("hugetlb-max", "", "SIZE:MOST", "most memory in huge pages of a size: 2MB:1G; once for each", str,
           many=True, ours=True),
    Option("oom-kill-step", "", "0|1", "end the whole step when it runs out of memory", _flag, has_arg=MAYBE_ARGUMENT),
    Option("input", "i", "FILE", "stdin: a file pattern, a task number, all (default) or none", user_file,
           dest="stdin"),
    Option("output", "o", "FILE", "stdout: a file pattern (%t task, %j job), a number, all, none", user_file,
           dest="stdout"),
    Option("error", "e", "FILE", "stderr, with the same patterns", user_file, dest="stderr"),
    Option("label", "l", "", "begin each line with its task's number", _flag, has_arg=NO_ARGUMENT),
    Option("unbuffered", "u", "", "give tasks a terminal for stdout: they will not buffer", _flag, has_arg=NO_ARGUMENT),
    Option("pty", "", "TASK", "give task 0, or this one, a terminal that yours shows; others get nothing", _task,
           has_arg=MAYBE_ARGUMENT),
    Option("verbose", "v", "", "say more; twice for more still", _flag, has_arg=NO_ARGUMENT),
    Option("kill-on-bad-exit", "K", "0|1", "end the step when a task fails", _flag, has_arg=MAYBE_ARGUMENT),
    Option("cpu-bind", "", "BIND", "[quiet|verbose,][one_thread,]none|threads|cores|sockets|ldoms|map_cpu:LIST|"
           "mask_cpu:LIST|map_ldom:LIST|mask_ldom:LIST|rank_ldom", str),
    Option("export", "", "VARS", "environment of the tasks: ALL (default), NONE, or NAME,NAME=VALUE,...", str),
    Option("propagate", "", "LIMITS", "soft limits that tasks have as here: ALL (default), NONE, or CORE,NOFILE", str,
           has_arg=MAYBE_ARGUMENT),
    Option("task-prolog", "", "FILE", "script run as you before each task", str),
    Option("task-epilog", "", "FILE", "script run as you after each task", str),
    Option(
        "container-ns", "", "LIST", "namespaces of the job's own: pid, ipc, uts, net, cgroup, time, user", _words,
        dest="container_ns", ours=True,
    ),
    Option(
        "secure", "", "LEVEL",
        "how far the step is confined: none, default, or strict, which lets it write nowhere but in the working and "
        "temporary directories", str, ours=True,
    ),
    Option(
        "preload", "", "MODULE", "import these Python modules once, MODULE,MODULE: tasks that run a Python script are "
        "forks of that interpreter. Other programs start as always, with a warning", _words, ours=True,
    ),
    Option("uid", "", "USER", "run as this user (root only)", str),
    Option("gid", "", "GROUP", "run with this primary group", str),
    Option("trace", "", "FILE", "write the step's flight recorder to FILE too", str, ours=True),
    Option("help", "h", "", "this text", _flag, has_arg=NO_ARGUMENT),
)  # fmt: skip


def layout_options() -> tuple[Option, ...]:
    """Return the options of layout and binding, without those above.

    Few steps have such options, and only these pay for the table.
    """
    from nodectl.placement.binding.options import FLAG, ROWS

    here = {option.long for option in OPTIONS}
    return tuple(
        Option(long, short, arginfo, text, _given, has_arg=NO_ARGUMENT if kind == FLAG else ARGUMENT)
        if long != "exclusive"
        else Option(long, short, "user|mcs|topo", text, _exclusive, has_arg=MAYBE_ARGUMENT)
        for long, short, arginfo, text, kind in ROWS
        if long not in here
    )


def _exclusive(text: str) -> str:
    """Check the word of --exclusive and return "1".

    The word names the jobs which may share several nodes; here no node is shared.
    """
    if text not in ("", "user", "mcs", "topo"):
        raise ValueError(f"Invalid value {text[:20]!r}, user, mcs and topo are allowed")
    return "1"


def waiting_options() -> tuple[Option, ...]:
    """Return the options of a job which may have to wait."""
    from nodectl.client.job_options import RUN

    return options_of(RUN)


def options_of(rows: "Iterable[Row]") -> tuple[Option, ...]:
    """Return Options made of plain rows."""
    return tuple(
        Option(long, short, arginfo, text, take, dest=dest, has_arg=has_arg)
        for long, short, arginfo, text, take, has_arg, dest in rows
    )


def _given(text: str) -> str:
    """Return the text as typed, for the service to read; "1" for a switch, which has no text."""
    return text or "1"


class Parsed:
    """The parsed command line: `values` by dest, `argv` the program. Plugins' options are with the plugins already.

    `layout`, `job` and `further` name the dests which are options of layout and binding, of a job which may have to
    wait, and of rare steps, as far as the parser had to know. `told`: variables of the tasks which state the given
    options, beside `environment`, which is None for the command's own. `of_cluster`: the command asks a cluster, where
    `no_kill` has a meaning.
    """

    __slots__ = (
        "argv", "environment", "further", "job", "layout", "no_kill", "of_cluster", "told", "values", "verbose",
    )  # fmt: skip

    def __init__(self) -> None:
        self.no_kill = self.of_cluster = False
        self.layout: tuple[str, ...] = ()
        self.job: tuple[str, ...] = ()
        self.further: tuple[str, ...] = ()
        self.environment: dict[str, str] | None = None
        self.told: dict[str, str] = {}
        self.values: dict[str, object] = {}
        self.argv: list[str] = []
        self.verbose = 0

    @property
    def wants_step(self) -> bool:
        """Whether the command line asks for a step, rather than for an immediate answer such as the help."""
        asks = "help" in map(self.values.get, _WITH_HELP) or self.values.get("mpi") == "list"
        return not asks and self.values.keys().isdisjoint(_ANSWERED)


class RunParser:
    """The parser for the table, for the options of plugins, and for a command's `own` options, which go first."""

    _table: tuple[Option, ...] = OPTIONS
    _of_slurm = "srun"  # the command whose other options are known, and refused by name
    wants_program = True  # behind the options

    def __init__(
        self,
        extra: "Iterable[PluginOption]" = (),
        own: "Iterable[Option]" = (),
        further: "Callable[[Mapping[str, Option]], tuple[Option, ...]]" = lambda _: (),
    ) -> None:
        """Build the tables. `further` returns rare options, given the options known by then."""
        self.extra = list(extra)
        self._further_options = further
        self._own = list(own)
        self._long = {option.long: option for option in (*self.extra, *self._table, *self._own)}
        self._short = {option.short: option for option in (*self._table, *self._own) if option.short}
        self._layout: tuple[str, ...] = ()
        self._job: tuple[str, ...] = ()
        self._further: tuple[str, ...] = ()

    def parse(self, words: "Sequence[str]") -> Parsed:
        """Parse words into a new Parsed. Raises BadOption."""
        return self.parse_into(Parsed(), words)

    def parse_into(self, parsed: Parsed, words: "Sequence[str]") -> Parsed:
        """Parse words and add the options to `parsed`. Raises BadOption."""
        rest = list(words)
        while rest and rest[0].startswith("-") and rest[0] != "-":
            word = rest.pop(0)
            if word == "--":
                break
            if word.startswith("--"):
                self._take_long(parsed, word[2:], rest)
            else:
                self._take_short(parsed, word[1:], rest)
        parsed.argv = rest
        self.tell_kinds(parsed)
        return parsed

    def tell_kinds(self, parsed: Parsed) -> None:
        """Store the dests of layout, job and rare options in `parsed`, as far as known."""
        parsed.layout, parsed.job, parsed.further = self._layout, self._job, self._further

    def _take_long(self, parsed: Parsed, text: str, rest: list[str]) -> None:
        name, equals, value = text.partition("=")
        option = self.find(name)
        if equals and option.has_arg == NO_ARGUMENT:
            raise BadUsage(f"option '--{option.long}' doesn't allow an argument")
        if not equals and option.has_arg == ARGUMENT:
            if not rest:
                raise BadUsage(f"option '--{option.long}' requires an argument")
            equals, value = "=", rest.pop(0)
        if isinstance(option, PluginOption):
            self._tell(option, value if equals else None)
        else:
            self._store(parsed, option, value)

    def _tell(self, option: PluginOption, value: str | None) -> None:
        """Pass the option's value to the plugin. Raises BadOption."""
        option.take_argument(value)

    def all_options(self) -> "list[Option]":
        """Return each known option once."""
        self._learn()
        return list({id(option): option for option in self._long.values()}.values())

    def _learn(self) -> None:
        """Add the options of layout and of waiting jobs, unless already added."""
        if self._layout:
            return
        layout, job = self._layout_options(), self._job_options()
        for options in (job, layout):
            self._add(options)
        further = self._further_options(self._long)
        self._add(further)
        self._further = tuple(option.dest for option in further)
        self._layout = tuple(option.dest for option in layout)
        self._job = tuple(option.dest for option in job)

    def _add(self, options: "Iterable[Option]") -> None:
        for option in options:
            self._long.setdefault(option.long, option)
            if option.short:
                self._short.setdefault(option.short, option)

    def _layout_options(self) -> "tuple[Option, ...]":
        return layout_options()

    def _job_options(self) -> "tuple[Option, ...]":
        return waiting_options()

    def find(self, name: str) -> Option:
        """Return the option with this name, or with a unique abbreviation. Raises BadUsage."""
        if name not in self._long:
            self._learn()
        if name in self._long:
            return self._long[name]
        from nodectl.client.srun.mistakes import meant  # only for abbreviations and mistakes

        return self._long[meant(name, self._long, self._of_slurm)]

    def _take_short(self, parsed: Parsed, text: str, rest: list[str]) -> None:
        while text:
            if text[0] not in self._short:
                self._learn()
            option = self._short.get(text[0])
            if option is None:
                raise BadUsage(f"invalid option -- '{text[0]}'")
            text = text[1:]
            if option.has_arg == NO_ARGUMENT:
                self._store(parsed, option, "")
                continue
            if not text and option.has_arg == ARGUMENT:
                if not rest:
                    raise BadUsage(f"option requires an argument -- '{option.short}'")
                text = rest.pop(0)
            self._store(parsed, option, text)
            return

    def _store(self, parsed: Parsed, option: Option, value: str) -> None:
        if option.long == "verbose":
            parsed.verbose += 1
        else:
            try:
                taken = option.take(value)
            except ValueError as error:
                raise BadOption(f"{error} for --{option.long}.") from None
            parsed.values[option.dest] = self._added(parsed, option, taken) if option.many else taken

    @staticmethod
    def _added(parsed: Parsed, option: Option, value: object) -> list[object]:
        before: list[object] = parsed.values.get(option.dest, [])  # type: ignore[assignment]  # stored here
        return [*before, value]
