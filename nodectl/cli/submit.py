"""`nodectl submit`: put a batch script into the queue, with sbatch's options."""

import os
import sys
from collections.abc import Mapping, Sequence

from nodectl.client import batch_script, waiting
from nodectl.client.command import BadOption, Failed, GlobalOptions, Program
from nodectl.client.job_command import JobCommand, run_command
from nodectl.client.launch_request import takes_all
from nodectl.client.srun import wording
from nodectl.model.wire.names import WRAP

_FROM_INPUT = "submit"  # the name of a job whose script comes on standard input


def main(settings: GlobalOptions, words: Sequence[str]) -> int:
    """Run the whole command. Return the exit status."""
    return run_command("submit", settings, words, _submit)


def _submit(command: JobCommand) -> int:
    if not command.wants_help():
        text, argv = _script(command)
        lines = [(f"{argv[0]}: {where}", words) for where, words in batch_script.option_lines(text)]
    else:
        text, argv, lines = "", [], []
    if not command.read(lines):
        return 0
    values = command.parsed.values
    waits, parsable = values.pop("wait", False), values.pop("parsable", False)
    only_test = values.pop("test_only", False)
    values.pop("wrap", None)
    values.setdefault("name", os.path.basename(argv[0]))
    command.parsed.argv = argv
    login = values.pop("get_user_env", None)
    choice = None if command.parsed.environment is not None else values.get("export")
    request, options = command.request()
    request["environment"] = _completed(request["environment"], choice, login)  # type: ignore[arg-type]  # its own
    if (place := batch_script.overlooked(text)) and not Program.is_slurms():
        waiting.say(f"warning: {argv[0]}: {place} stands behind the first command, where no options are read")
    if options.get("mail_user") and not options.get("mail_type") and not Program.is_slurms():
        waiting.say("warning: --mail-user alone has no mail sent; --mail-type=END,FAIL names the events")
    if only_test:
        return _test(command, request, options)
    return queued(command, request, options, text, waits=bool(waits), parsable=bool(parsable))


def queued(
    command: JobCommand, request: dict[str, object], options: dict[str, object], text: str, *, waits: bool,
    parsable: bool,
) -> int:  # fmt: skip
    """Submit the script and print the job's number. Return the exit status, of the job where `waits`. Raises Failed."""
    command.session.hold_signals()
    job = waiting.accepted(_accepted(command, request, options, text))
    if not Program.quiet:
        _tell_number(job, f"{job}" if parsable else f"Submitted batch job {job}")
        if not parsable and not Program.is_slurms() and sys.stderr.isatty():
            _tell_output(command, job)
    command.session.let_signals_go()
    return waiting.until_over(command.session, job) if waits else 0


def _tell_output(command: JobCommand, job: int) -> None:
    """Tell a person where the output goes. The number is out, so that nothing here may fail the command."""
    try:
        record: Mapping[str, object] = command.session.call("ShowJob", job=str(job))["record"]  # type: ignore[assignment]
    except Failed:
        return
    if path := record.get("output"):
        from nodectl.model.words import printable  # only at a terminal

        follow = f"`nodectl log -f {job}{'_N' if record.get('array_tasks') else ''}`"
        waiting.say(f"output goes to {printable(str(path))}; {follow} follows it")
        directory = os.path.dirname(str(path))
        if "%" not in directory and not os.path.isdir(directory):
            waiting.say(f"warning: there is no directory {printable(directory)}; without it the job fails at its start")


def _tell_number(job: int, line: str) -> None:
    """Print the number.

    Raises Failed with the number, because a script might submit the job again after a mere failure.
    """
    try:
        print(line, flush=True)
    except OSError:  # the command's end says why
        raise Failed(f"job {job} is queued, but its number could not be written to standard output", job=job) from None


def _completed(environment: dict[str, str], choice: "str | None", login: "float | None") -> dict[str, str]:
    """Return the script's environment for --export and --get-user-env.

    SLURM_EXPORT_ENV passes --export on to the job's steps. A script with little of this shell's environment gets the
    environment of the user's login.
    """
    if choice is not None and choice.upper() != "ALL":
        environment["SLURM_EXPORT_ENV"] = choice
    if login is None and (choice is None or takes_all(choice)):
        return environment
    from nodectl.client import login_environment  # few scripts need one

    environment["SLURM_GET_USER_ENV"] = "1"
    seconds = login_environment.DEADLINE if login is None else login
    return login_environment.with_login(environment, waiting.say, seconds)


def _script(command: JobCommand) -> tuple[str, list[str]]:
    """Return the script's text, and a list of name and arguments."""
    argv, wrap = command.arguments()
    if wrap is not None:
        if argv:
            raise BadOption("--wrap has no script beside it: give either")
        return batch_script.wrapped(str(wrap)), [WRAP]
    if not argv or argv[0] == "-":
        if sys.stdin.isatty():
            waiting.say("reading the script from the terminal; Ctrl-D ends it")
        return batch_script.read(""), [_FROM_INPUT, *argv[1:]]
    return batch_script.read(argv[0]), argv


def _accepted(
    command: JobCommand, request: dict[str, object], options: dict[str, object], text: str
) -> Mapping[str, object]:
    try:
        return command.session.call("Submit", request=request, job=options, script=text)
    except Failed as failed:
        if failed.name:
            if not Program.is_slurms():
                raise
            told = wording.refusal(failed, wording.SUBMIT)
            what = "" if told.startswith(wording.SUBMIT) else f"{wording.SUBMIT}: "
            raise Failed(f"{what}{told}", failed.status) from None
        raise Failed(f"{failed}; `nodectl queue --me` tells whether it took the job") from None


def _test(command: JobCommand, request: dict[str, object], options: dict[str, object]) -> int:
    from nodectl.client.start_test import would_start  # few submissions are tests

    wanted = {**request, "environment": waiting.told(request)}
    waiting.say(would_start(command.session, wanted, options))
    return 0
