"""The options of steps and jobs as keyword arguments.

They are the options of `nodectl run` and `nodectl submit`, named by their long names with '_' for '-', and read by the
tables that also read the command line.

A switch is True; False and None mean not given. A sequence becomes a list with commas, or repeats the option where the
option may be given several times. Unlike the command, the client reads no options from variables (SLURM_*, SBATCH_*).
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from nodectl.client.api.keywords import JobOptions, StepOptions
from nodectl.client.command import BadOption
from nodectl.client.job_parser import JobParser, job_options, outside_of_jobs
from nodectl.client.launch_request import TOLD, job_environment, make_request
from nodectl.client.run_options import Option, Parsed, RunParser
from nodectl.client.srun.manners import settle

STEP = StepOptions.__required_keys__ | StepOptions.__optional_keys__
JOB = JobOptions.__required_keys__ | JobOptions.__optional_keys__
_OF_PLUGINS = "plugin_options"
_STDIN = "all"  # set where stdin was not given, so that make_request does not look at descriptor 0


class WantedLaunch:
    """A request, and the options of the job. `patience`: seconds to wait for a turn, None for no limit."""

    __slots__ = ("of_job", "patience", "request")

    def __init__(self, request: dict[str, object], of_job: dict[str, object], patience: int | None = None) -> None:
        self.request = request
        self.of_job = of_job
        self.patience = patience


def words(given: Mapping[str, object], known: Iterable[str], parser: RunParser) -> list[str]:
    """Return the command line words equivalent to the options given. Raises TypeError for an unknown name."""
    if unknown := sorted(given.keys() - set(known)):
        raise TypeError(f"{unknown[0]!r} is no option here; there are {', '.join(sorted(known))}")
    found = []
    for name, value in given.items():
        if value is None or value is False:
            continue
        option = parser.find(name.replace("_", "-"))
        found += [f"--{option.long}{text}" for text in _texts(option, value)]
    return found


def _texts(option: Option, value: object) -> list[str]:
    if value is True:
        return [""]
    if isinstance(value, timedelta):
        minutes, seconds = divmod(round(value.total_seconds()), 60)
        return [f"={minutes}:{seconds:02}"]
    if isinstance(value, str | os.PathLike):
        return [f"={os.fsdecode(value)}"]
    if isinstance(value, Sequence):
        return [f"={one}" for one in value] if option.many else [f"={','.join(value)}"]
    return [f"={value}"]


def step(
    argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str] | None, given: Mapping[str, object]
) -> WantedLaunch:
    """Return the request for a step, without the streams. Raises BadOption, TypeError."""
    if isinstance(argv, str | bytes) or not argv:
        raise TypeError("the command is a sequence of words, as ['hostname', '-f']")
    from nodectl.client.srun import options

    parser = RunParser(further=options.further)
    of_command = {name: value for name, value in given.items() if name != _OF_PLUGINS}
    parsed = parser.parse(words(of_command, STEP, parser))
    parsed.argv = [os.fsdecode(word) for word in argv]
    settle(parsed)
    of_job = {name: parsed.values.pop(name) for name in parsed.job if name in parsed.values}
    parsed.told.update((TOLD[name], str(of_job[name])) for name in TOLD if name in of_job)
    patience = of_job.pop("immediate", None)
    parsed.values["stdin"] = _STDIN
    request = make_request(parsed, {})
    del request["stdin"]
    request["environment"] = _environment(parsed, env)
    if given.get(_OF_PLUGINS):
        request["options"] = [list(option) for option in given[_OF_PLUGINS]]  # type: ignore[attr-defined]
    return WantedLaunch(request, of_job, patience if isinstance(patience, int) else None)


def job(
    name: str, arguments: Sequence[str], lines: Iterable[tuple[str, Sequence[str]]], env: Mapping[str, str] | None,
    given: Mapping[str, object],
) -> WantedLaunch:  # fmt: skip
    """Return the request for a batch script, with the options in the script's own lines. Raises BadOption, TypeError.

    `given` overrides the options of the lines.
    """
    parser, parsed = JobParser("submit"), Parsed()
    for where, of_line in lines:
        try:
            parser.parse_into(parsed, of_line)
        except BadOption as error:
            raise type(error)(f"{where}: {error}") from None
        if parsed.argv:
            raise BadOption(f"{where}: {parsed.argv[0]!r} is no option")
    parser.parse_into(parsed, words(given, JOB, parser))
    for of_command in ("help", "ignored", "parsable", "quiet", "test_only", "wait", "wrap"):
        parsed.values.pop(of_command, None)
    parsed.argv = [name, *arguments]
    parsed.values.setdefault("name", os.path.basename(name))
    settle(parsed)
    of_job = job_options(parsed)
    parsed.told.update((TOLD[option], str(of_job[option])) for option in TOLD if option in of_job)
    stdin = parsed.values.pop("stdin", None)
    parsed.values["stdin"] = _STDIN
    request = make_request(parsed, {})
    del request["stdin"]
    if stdin is not None:
        request["stdin"] = stdin
    request["environment"] = _environment(parsed, outside_of_jobs(os.environ) if env is None else env)
    return WantedLaunch(request, of_job)


def _environment(parsed: Parsed, env: Mapping[str, str] | None) -> dict[str, str]:
    return job_environment(parsed, parsed.environment or dict(os.environ if env is None else env))
