"""`nodectl doctor`: report this machine's abilities and lacks for running steps, with advice.

Looks at the machine (`nodectl.cli.checks`), the configuration, the plugins and the service. Changes nothing; plugins
are read, not run.
"""

import argparse
import grp
import json
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from nodectl import __version__
from nodectl.cli import fence
from nodectl.cli.checks import confinement, container, logins, machine, notices, own_node_rights, room, usage
from nodectl.cli.checks.check import FAIL, OK, WARN, Check
from nodectl.cli.plugin_list import node_plugins, spank_plugins, unusable
from nodectl.client.command import Failed
from nodectl.client.configuration import as_json, configured
from nodectl.client.render.terminal import COLOURS, put, wants_colour
from nodectl.client.service_start import start_command
from nodectl.client.session import Session
from nodectl.model.config import Config, own_node
from nodectl.model.words import printable
from nodectl.service.config_file.reader import build
from nodectl.spank import plugstack

if TYPE_CHECKING:
    from nodectl.client.command import GlobalOptions

_PATIENCE = 10.0  # seconds for an answer of the service
_COLOURS = {OK: "32", WARN: "33", FAIL: "1;31"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl doctor` to the parser."""
    parser.add_argument(
        "--color", choices=COLOURS, default="auto", metavar="|".join(COLOURS), help="colours; auto: on a terminal"
    )
    parser.add_argument("--json", action="store_true", help='print one JSON object, {"checks": [...]}')
    parser.epilog = (
        "ok: as it should be. warn: steps run, but something is not enforced or not tried. fail: steps cannot run. "
        "What stands behind -> is what an admin can do. As root it makes a cgroup and namespaces for "
        "a moment."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the findings. Return 1 if any finding is a fail, else 0."""
    checks = list(_all(arguments.settings))
    if arguments.json:
        fields = ("level", "what", "detail", "advice")
        rows = [{name: getattr(check, name) for name in fields} for check in checks]
        print(json.dumps({"checks": rows}, indent=2))
    else:
        put(report(checks, colour=wants_colour(arguments.color)))
    return int(any(check.level == FAIL for check in checks))


def report(checks: Sequence[Check], *, colour: bool = False) -> list[str]:
    """Return the findings as lines, with a count of each level."""
    wide = max((len(check.what) for check in checks), default=0)
    lines = []
    for check in checks:
        level = f"{check.level:4}"
        if colour:
            level = f"\x1b[{_COLOURS[check.level]}m{level}\x1b[0m"
        lines.append(f"{level}  {check.what:{wide}}  {printable(str(check))}")
    counts = [f"{sum(check.level == level for check in checks)} {level}" for level in (OK, WARN, FAIL)]
    return [*lines, "", ", ".join(counts)]


def _all(settings: "GlobalOptions") -> Iterator[Check]:
    try:
        config = configured(settings.config)
    except Failed as failed:
        yield Check(FAIL, "configuration", str(failed), "correct the file; the defaults are assumed below")
        config, valid = build({}), False
    else:
        valid = True
        yield Check(OK, "configuration", "valid")
    if own_node.is_own(settings.config):
        yield from machine.checks_of_own(config)
        yield from own_node_rights.all_checks(config)
        yield from confinement.all_checks(config)
        yield from plugin_checks(config)
        if valid:
            yield from service(settings, config)
        return
    yield from machine.all_checks(config)
    yield from room.all_checks(config)
    yield from usage.all_checks()
    yield from container.all_checks(config)
    yield from confinement.all_checks(config)
    yield admins(config)
    yield from scripts((("task_prolog", config.task_prolog), ("task_epilog", config.task_epilog)))
    yield from notices.all_checks(config)
    yield from logins.all_checks(config)
    yield from plugin_checks(config)
    if valid:  # else the service's socket is unknown
        answers = list(service(settings, config))
        yield from answers
        if answers[0].level != FAIL:  # else it may hang
            yield from fence.checks(settings)


def admins(config: Config) -> Check:
    """Check the group of the users with root's rights in nodectl."""
    name = config.admin_group
    if name.isdecimal():
        return Check(OK, "admin group", f"gid {name}")
    try:
        entry = grp.getgrnam(name)
    except KeyError:
        return Check(WARN, "admin group", f"no group {name!r}: only root is an admin", f"groupadd --system {name}")
    return Check(OK, "admin group", f"{name}, gid {entry.gr_gid}")


def scripts(paths: Iterable[tuple[str, str | None]]) -> Iterator[Check]:
    """Check the programs around each task, if configured."""
    for name, path in paths:
        if path is not None and not (os.path.isfile(path) and os.access(path, os.X_OK)):
            yield Check(FAIL, name, f"{path}: not a program that can be executed", f"make it one, or unset {name}")
        elif path is not None:
            yield Check(OK, name, path)


def plugin_checks(config: Config) -> Iterator[Check]:
    """Check the configured plugins without execution, and the lines of plugstack.conf."""
    listed = [one for one in node_plugins(config) if one.role != "available"]
    try:
        stack = plugstack.read(config.plugstack_config, config.plugin_dir)
    except plugstack.PlugstackError as error:
        yield Check(FAIL, "plugstack", str(error), "correct the file")
        stack = plugstack.Plugstack((), ())
    listed += [one for one in spank_plugins(config, stack) if one.role != "available"]
    good = [one for one in listed if not one.missing and not one.facts.problems]
    if good:
        names = (one.type if one.kind != "spank" else one.facts.name for one in good)
        yield Check(OK, "plugins", ", ".join(names))
    for one in listed:
        where = f"{one.origin}: " if one.origin else ""
        level = FAIL if unusable(one) else WARN
        if one.kind == "spank" and one.missing:
            advice = "install it in plugin_dir, or take the line out"
            yield Check(level, "plugins", f"{where}{one.role} plugin {one.facts.path} is missing", advice)
        yield from (Check(level, "plugins", f"{where}{problem}") for problem in one.facts.problems)
        yield from (Check(WARN, "plugins", f"{where}{warning}") for warning in one.facts.warnings)
    yield from (Check(WARN, "plugstack", warning, "correct the line") for warning in stack.warnings)


def service(settings: "GlobalOptions", config: Config) -> Iterator[Check]:
    """Check whether the service answers, has this version, and runs with this configuration."""
    socket.setdefaulttimeout(_PATIENCE)  # a service that hangs is a finding too
    try:
        session = Session(settings, start_private=False)
    except Failed as failed:
        is_own = own_node.is_own(settings.config)
        # Without a service root's commands, and those of --user, start a private node.
        level = WARN if (os.geteuid() == 0 or is_own) and not settings.socket else FAIL
        yield Check(level, "service", str(failed).partition(": start it")[0], start_command(own=is_own))
        return
    finally:
        socket.setdefaulttimeout(None)
    try:
        hello = session.call("Hello")
        running = session.call("Config")["config"]
    except Failed as failed:
        yield Check(FAIL, "service", str(failed), "look into its log: journalctl -u nodectld")
        return
    finally:
        session.close()
    if hello["version"] == __version__:
        yield Check(OK, "service", f"version {__version__} answers as node {hello['node']}")
    else:
        yield Check(
            FAIL, "service", f"runs version {hello['version']}, this is {__version__}", "systemctl restart nodectld"
        )
    ours = as_json(config)
    theirs = running if isinstance(running, dict) else {}
    changed = [name for name, value in ours.items() if theirs.get(name) != value]
    if changed:
        advice = "restart it to use the file: systemctl restart nodectld"
        yield Check(WARN, "service", f"runs with other values of {', '.join(changed)}", advice)
