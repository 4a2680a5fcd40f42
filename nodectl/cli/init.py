"""`nodectl init`: ask what a machine's owner has to decide, and write the configuration. Runs as its user, without a
service.
"""

import argparse
import grp
import os
import stat
import sys
import textwrap
import time
import tomllib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from nodectl.client import whole_file
from nodectl.client.command import Failed
from nodectl.client.job_name import for_argparse
from nodectl.client.run_options import positive
from nodectl.kernel import trust
from nodectl.model.config import ConfigError
from nodectl.model.config.key import toml
from nodectl.model.number import mebibytes, seconds
from nodectl.model.words import duration
from nodectl.service.config_file import reader
from nodectl.service.config_file.all_keys import KEYS

_WIDTH = 100
_MOST_BYTES = 1 << 20
_DAY = 86_400
_FEW_CPUS = 4  # with fewer of them, half of them is too little for one user


def _count(text: str) -> int:
    return 0 if text == "0" else positive(text)


def _group(text: str) -> str:
    try:
        return grp.getgrnam(text).gr_name
    except KeyError:
        raise ValueError(f"there is no group {text[:40]!r}: groupadd makes one") from None


class SetupQuestion(NamedTuple):
    """What is asked, which is also the option's help, and the key that the answer is the value of.

    `take` reads an answer and raises ValueError, `shown` writes one. `usual` makes the default of the answers above.
    `unit` is that of the number in the file, in words.
    """

    option: str
    argument: str
    key: str
    text: str
    take: Callable[[str], object]
    shown: Callable[[int], str]
    usual: Callable[[Mapping[str, int]], object]
    unit: str = ""
    is_asked: bool = True


def _cpus() -> int:
    return os.cpu_count() or 1


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def _of_machine(text: str) -> int:
    """Return a size in MiB, which the machine has. Raises ValueError."""
    size, most = mebibytes(text), _memory()
    if size > most:
        raise ValueError(f"{text} is more than the memory of this machine, {_mib(most)}")
    return size


def _mib(number: int) -> str:
    return f"{number}M"


def _users_memory(answers: Mapping[str, int]) -> int:
    """Return as much of the memory as the user has of the CPUs."""
    return answers["real_memory"] * answers["max_cpus_per_user"] // _cpus()


_IN_MIB = ", in MiB"
QUESTIONS = (
    SetupQuestion(
        "time", "TIME", "default_time", "time limit of a job that names none", seconds, duration, lambda _: _DAY,
        ", in seconds; 0: none",
    ),
    SetupQuestion(
        "memory", "SIZE", "real_memory", "memory for all jobs; the rest stays for logins and the system",
        _of_machine, _mib, lambda _: _memory() * 9 // 10, _IN_MIB,
    ),
    SetupQuestion(
        "mem-per-cpu", "SIZE", "def_mem_per_cpu", "memory for each CPU of a job that names none",
        mebibytes, _mib, lambda answers: answers["real_memory"] // _cpus(), _IN_MIB,
    ),
    SetupQuestion(
        "user-cpus", "N", "max_cpus_per_user", "CPUs that one user may have at a time, 0: all",
        _count, str, lambda _: 0 if _cpus() < _FEW_CPUS else (_cpus() + 1) // 2,
    ),
    SetupQuestion(
        "user-memory", "SIZE", "max_memory_per_user", "memory that one user may have at a time, 0: all",
        mebibytes, _mib, _users_memory, _IN_MIB, is_asked=False,
    ),
    SetupQuestion(
        "user-jobs", "N", "max_jobs_per_user", "jobs that one user may have running, 0: any number",
        _count, str, lambda _: 0, is_asked=False,
    ),
    SetupQuestion(
        "user-devices", "N", "max_devices_per_user", "devices that one user may have at a time, 0: all",
        _count, str, lambda _: 0, is_asked=False,
    ),
    SetupQuestion(
        "admins", "GROUP", "admin_group", "group whose members may do what root may", _group, str, lambda _: "nodectl",
    ),
    SetupQuestion(
        "history", "DAYS", "history_days", "days for which ended jobs are kept, 0: while there is room",
        _count, str, lambda _: 365,
    ),
)  # fmt: skip
_HELP = {key.name: key.help for key in KEYS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl init` to the parser."""
    for one in QUESTIONS:
        parser.add_argument(
            f"--{one.option}", type=for_argparse(one.take), dest=one.key, metavar=one.argument, help=one.text
        )
    parser.add_argument("--yes", action="store_true", help="ask nothing: take the default of what no option names")
    parser.add_argument(
        "--force", action="store_true", help="replace a configuration that sets something; the old file stays beside"
    )
    parser.epilog = (
        "Without options it asks on the terminal. It writes /etc/nodectl/nodectl.toml, or the file that `nodectl "
        "--config FILE init` names. With --force, keys that it does not ask for stay as they are."
    )


def main(arguments: argparse.Namespace) -> int:
    """Ask, and write the file. Return 0. Raises Failed, and has then changed nothing."""
    path = os.path.abspath(arguments.settings.config or reader.DEFAULT_PATH)
    given = {one.key: value for one in QUESTIONS if (value := getattr(arguments, one.key)) is not None}
    asks = not (given or arguments.yes)
    if asks and not _has_terminal():
        raise Failed("there is no terminal to ask on: answer by options, or take the defaults with --yes", 2)
    old, rest = _present(path, is_replaced=arguments.force)
    if asks and not _may_write(path):
        raise Failed(f"you may not write {path}: as root it works")
    answers: dict[str, object] = {}
    for one in QUESTIONS:
        usual = old[one.key] if one.key in old else one.usual(answers)  # type: ignore[arg-type]  # those above are numbers
        answers[one.key] = _asked(one, usual) if asks and one.is_asked else given.get(one.key, usual)
    text = _text(answers, rest)
    try:
        reader.build(tomllib.loads(text), path)
    except ConfigError as error:
        raise Failed(f"{error}; nothing was written") from None
    kept = _replace(path, text)
    print(f"{path} is written" + (f"; the old one is {kept}" if kept else ""))
    restart = "`systemctl restart nodectld`" if os.path.isdir("/run/systemd/system") else "A restart of the service"
    print(f"{restart} puts it into force; running steps go on. `nodectl config --explain` has all keys.")
    return 0


def _may_write(path: str) -> bool:
    """Whether the directory of the file can be written or made, as far as that can be seen before the questions."""
    while not os.path.isdir(directory := os.path.dirname(path)):
        path = directory
    return os.access(directory, os.W_OK)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _present(path: str, *, is_replaced: bool) -> tuple[dict[str, object], dict[str, object]]:
    """Return the answers that the present file has, and the keys that it sets besides.

    Raises Failed where it may not be replaced: it sets something, or is not valid.
    """
    try:
        values = tomllib.loads(trust.read(path, _MOST_BYTES).decode())
        config = reader.build(values, path)
    except FileNotFoundError:
        return {}, {}
    except (OSError, trust.Untrusted) as error:
        raise Failed(f"{path}: {error}") from None
    except (ValueError, RecursionError, ConfigError) as error:
        if not is_replaced:
            raise Failed(f"{path} is there already, and is not valid ({error}): --force replaces it") from None
        print(f"nodectl: {path} is not valid, nothing of it is taken over: {error}", file=sys.stderr)
        return {}, {}
    if values and not is_replaced:
        raise Failed(f"{path} is there already: --force replaces it, and keeps the old file beside it")
    asked = {one.key for one in QUESTIONS}
    return (
        {name: getattr(config, name) for name in values if name in asked},
        {name: value for name, value in values.items() if name not in asked},
    )


def _asked(question: SetupQuestion, usual: object) -> object:
    """Return the answer given on the terminal; an empty one is the default. Raises Failed where input ends."""
    while True:
        try:
            text = input(f"{question.text} [{question.shown(usual)}]: ").strip()  # type: ignore[arg-type]
        except EOFError:
            print()
            raise Failed("the answers ended; nothing was written") from None
        try:
            return question.take(text) if text else usual
        except ValueError as error:
            print(f"  {error}")


def _text(answers: Mapping[str, object], rest: Mapping[str, object]) -> str:
    lines = [
        f"# The configuration of this node, written by `nodectl init` on {time.strftime('%Y-%m-%d')}. Edit it freely.",
        "# After a change: systemctl restart nodectld; running steps go on. All keys: nodectl config --explain",
    ]
    said = {one.key: f"{one.text[0].upper()}{one.text[1:]}{one.unit}." for one in QUESTIONS}
    for name, value in {**answers, **rest}.items():
        lines += ["", *textwrap.wrap(f"# {said.get(name) or _HELP[name]}", _WIDTH, subsequent_indent="# ")]
        lines.append(_line(name, value))
    return "\n".join((*lines, ""))


def _line(name: str, value: object) -> str:
    return f"{name} = {toml(tuple(value) if isinstance(value, list) else value)}"


def _replace(path: str, text: str) -> str:
    """Put the text into the file's place at once, and return the name that the old file has now, "" for none."""
    directory, name = os.path.split(path)
    kept = f"{name}.{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        os.makedirs(directory, 0o755, exist_ok=True)
        fd = whole_file.open_directory(directory)
        try:
            old = os.stat(path) if os.path.exists(path) else None
            if os.path.lexists(path):
                os.link(name, kept, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
            else:
                kept = ""
            mode, group = 0o644, -1
            if old is not None and stat.S_ISREG(old.st_mode):
                mode, group = stat.S_IMODE(old.st_mode), old.st_gid if os.geteuid() == 0 else -1
            whole_file.write(fd, name, mode, [text.encode()], group, synced=True)
        finally:
            os.close(fd)
    except OSError as error:
        raise Failed(f"write {path}: {error.strerror}" + ("" if os.geteuid() == 0 else " (as root it works)")) from None
    return kept and os.path.join(directory, kept)
