"""`nodectl login`: choose the job that login sessions of this user join. With --pam, let a session join that begins."""

import argparse
import os
import pwd
import shlex
from typing import Any

from nodectl.client import pam_session
from nodectl.client.command import Failed
from nodectl.client.job_name import add_jobs, number_of, one
from nodectl.client.session import Session

_ADMIN = "admin"  # in the place of login_entry: sessions of an admin are left alone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl login` to the parser."""
    add_jobs(parser, "the job that your next sessions join, as long as it runs", optional=True)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--newest", action="store_true", help="they join the newest one again")
    way.add_argument("--export", action="store_true", help="print the variables of the job around this session, for a "
                     'shell: eval "$(nodectl login --export)"')  # fmt: skip
    way.add_argument("--pam", action="store_true", help="for pam_exec, as root: the session that begins joins a job of "
                     "PAM_USER, or is refused, as the key login_entry says")  # fmt: skip
    parser.epilog = (
        "Without a job it tells which one your next session joins. A session, by ssh for example, has the job's CPUs, "
        "memory and devices, and ends with the job. It is not in the job's container: `nodectl enter` is."
    )


def main(arguments: argparse.Namespace) -> int:
    """Tell, choose, print variables, or serve PAM. Return the exit status."""
    if arguments.pam:
        return pam_session.begin(arguments.settings)
    session = Session(arguments.settings, start_private=False)
    try:
        wanted: dict[str, Any] = {"job": 0} if arguments.newest else {}
        if arguments.jobs:
            wanted["job"] = _number(session, arguments.jobs)
        reply: Any = session.call("Login", **wanted)
        config: Any = session.call("Config")["config"]
    finally:
        session.close()
    if arguments.export:
        for name, value in reply["environment"].items():
            if name.isascii() and name.isidentifier():
                print(f"export {name}={shlex.quote(value)}")
        return 0
    moves = not pam_session.is_admin(pwd.getpwuid(os.getuid()), config["admin_group"])
    print("\n".join(_words(reply, config["login_entry"] if moves else _ADMIN)))
    return 0


def _number(session: Session, words: list[str]) -> int:
    name = one(session, words)
    if isinstance(name, tuple):
        raise Failed("a session joins a job, not a step", 2)
    return number_of(session, name)


def _words(reply: Any, entry: str) -> list[str]:
    """Return the lines for a person."""
    found = [f"this session is in job {reply['inside']}"] if reply["inside"] else []
    if entry == "off":
        return [*found, "login sessions join no jobs on this machine: login_entry is off"]
    if entry == _ADMIN:
        return [*found, "your login sessions stay where they are: you are an admin"]
    if not reply["job"]:
        end = "is refused" if entry == "require" else "joins none"
        return [*found, f"your next session {end}: no job of yours runs here"]
    how = "which you have chosen" if reply["chosen"] else "the newest of yours that runs"
    return [*found, f"your next session joins job {reply['job']}, {how}"]
