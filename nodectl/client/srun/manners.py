"""Rare options for the command itself, taken out of the options before any request to the service.

Options the service can be asked for stay among the options, under the names of the request. The rest is for this
command.
"""

import os
import time

from nodectl.client.command import BadOption, Program
from nodectl.client.srun import devices, text_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.client.run_options import Parsed

UNAVAILABLE = "Requested node configuration is not available"
_TMP = "/tmp"  # where --tmp wants room


class Manners:
    """The rare options for the command itself.

    `wait`: seconds after the first end of a task, 0 for none; `reduced`: report tasks which end alike only once.
    """

    __slots__ = ("bcast", "debugger_test", "disable_status", "epilog", "prolog", "quiet",
                 "quit_on_interrupt", "reduced", "test_exec", "test_only", "wait")  # fmt: skip

    def __init__(self) -> None:
        self.wait = 0
        self.debugger_test = False
        self.disable_status = False
        self.quit_on_interrupt = False
        self.quiet = False
        self.reduced = False
        self.test_exec = False
        self.test_only = False
        self.prolog = ""
        self.epilog = ""
        self.bcast: str | None = None


def of(parsed: "Parsed", variables: "Mapping[str, str]") -> Manners:
    """Take the rare options out of the parsed options. Raises BadOption."""
    manners, values = Manners(), parsed.values
    manners.reduced = _is_on(variables.get("SLURM_SRUN_REDUCE_TASK_EXIT_MSG", ""))
    manners.test_exec = "SLURM_TEST_EXEC" in variables
    for name in ("wait", "debugger_test", "disable_status", "quit_on_interrupt", "quiet", "test_only", "prolog",
                 "epilog", "bcast"):  # fmt: skip
        if name in values:
            setattr(manners, name, values.pop(name))
    for name in ("by_variable", "bcast_exclude", "compress", "send_libs", "het_group"):
        values.pop(name, None)
    if "open_mode" in values:
        values["open_append"] = values.pop("open_mode") == "append"
    if "x11" in values and not variables.get("DISPLAY"):
        raise BadOption("No DISPLAY variable set, cannot setup x11 forwarding.")
    values.pop("x11", None)
    if values.pop("external_launcher", False):
        values |= {"overlap": "1", "cpu_bind": "none"}
    _need_room(int(str(values.pop("tmp", 0))))
    settle(parsed)
    if values.pop("multi_prog", False) and parsed.argv:
        from nodectl.client.srun import multi_prog

        values["programs"] = multi_prog.read(parsed.argv[0], parsed.argv[1:])
    _tell_ignored(parsed)
    return manners


def settle(parsed: "Parsed") -> None:
    """Rewrite options of jobs and steps as options the service knows. Raises BadOption."""
    values = parsed.values
    if "account" in values:
        parsed.told["SLURM_JOB_ACCOUNT"] = str(values["account"])
    if "export_file" in values:
        parsed.environment = _environment(str(values.pop("export_file")))
    if "nodefile" in values:
        values["nodelist"] = nodes_of(str(values.pop("nodefile")))
    devices.settle(values)
    if "time_min" in values:
        _check_least(int(str(values.pop("time_min"))), values)


def _check_least(least: int, values: "Mapping[str, object]") -> None:
    """Check --time-min: the deadline and --time must leave enough time.

    A job gets all of its time here, so the option has no other effect.
    """
    begin = max(time.time(), float(str(values.get("begin", 0))))
    room = float(str(values.get("deadline") or begin + least)) - begin
    if least > room or 0 < float(str(values.get("time_limit") or 0)) < least:
        raise BadOption("Invalid time-min specification: more than --deadline or --time leaves")


def _is_on(text: str) -> bool:
    return text not in ("", "0")


def _tell_ignored(parsed: "Parsed") -> None:
    ignored: list[str] = parsed.values.pop("ignored", [])  # type: ignore[assignment]  # as they were added
    parsed.no_kill = "no-kill" in ignored  # over several nodes it means something
    if ignored and parsed.verbose:
        names = ", ".join(f"--{name}" for name in dict.fromkeys(ignored))
        os.write(2, f"{Program.name}: without effect on one machine: {names}\n".encode("utf-8", "surrogateescape"))


def _need_room(mebibytes: int) -> None:
    """Check --tmp against the size of the file system of /tmp, like slurmd."""
    if not mebibytes:
        return
    there = os.statvfs(_TMP)
    if there.f_blocks * there.f_frsize >> 20 < mebibytes:
        raise BadOption(
            f"{UNAVAILABLE}: --tmp: {_TMP} has {there.f_blocks * there.f_frsize >> 20} MiB", subject="machine"
        )


def nodes_of(path: str) -> str:
    """Return the nodes named in a file, between blanks, commas or newlines."""
    return ",".join(text_file.read(path, "the file of nodes").replace(",", " ").split())


def _environment(path: str) -> dict[str, str]:
    """Read NAME=VALUE, each followed by a NUL byte, in the format of `env -0`."""
    variables = {}
    for word in text_file.read(path, "--export-file").split("\0"):
        name, equals, value = word.partition("=")
        if name and equals:
            variables[name] = value
        elif word.strip():
            raise BadOption(f"--export-file {path!r}: {word[:40]!r} is no NAME=VALUE")
    return variables
