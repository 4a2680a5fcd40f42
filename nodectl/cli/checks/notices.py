"""Whether people can be told of their jobs: sendmail, and the administrator's command."""

import os
import pwd
from collections.abc import Iterator

from nodectl.cli.checks.check import FAIL, OK, Check
from nodectl.kernel import trust
from nodectl.model.config import Config


def all_checks(config: Config) -> Iterator[Check]:
    """Yield what is found about the ways to tell people of their jobs."""
    if config.sendmail:
        yield _program("sendmail", config.sendmail)
    else:
        words = "no sendmail: --mail-type sends no mail, and submit says so; postfix, msmtp-mta or dma have one"
        yield Check(OK, "mail", words)
    if config.notify_command:
        yield _program("notify_command", config.notify_command)
        yield _user(config.notify_user)


def _program(name: str, path: str) -> Check:
    try:
        trust.check(path)
    except (OSError, trust.Untrusted) as error:
        return Check(FAIL, name, str(error), f"correct it, or unset {name}")
    if not os.access(path, os.X_OK):
        return Check(FAIL, name, f"{path}: not a program that can be executed", f"make it one, or unset {name}")
    return Check(OK, name, f"{path} takes what is told of jobs")


def _user(name: str) -> Check:
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return Check(FAIL, "notify_user", f"there is no user {name!r}", "name an unprivileged user")
    if not user.pw_uid:
        return Check(FAIL, "notify_user", f"{name} is root", "name an unprivileged user")
    return Check(OK, "notify_user", f"{name}, uid {user.pw_uid}")
