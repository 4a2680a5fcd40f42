"""`nodectl fence`: keep login sessions in a corner of the machine, with what jobs leave of CPUs and memory, and no GPU.

`on` and `off` run as root, without the service; `status` as any user, with it. A command that is killed leaves the old
state or a part of the new one, which `status` calls so; the same command again mends it.
"""

import argparse
import fcntl
import json
import os
import pwd
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nodectl.cli import fence_units
from nodectl.cli.checks.check import OK, WARN, Check
from nodectl.client import whole_file
from nodectl.client.command import Failed
from nodectl.client.configuration import configured
from nodectl.client.render.table import pairs
from nodectl.client.render.terminal import put
from nodectl.client.session import Session
from nodectl.launch.cgroup import corner
from nodectl.launch.cgroup.corner import Corner, LoginShare
from nodectl.model.config import Config
from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.placement.binding import node
from nodectl.placement.binding.job import specialised
from nodectl.placement.machine import detected_devices, topology

if TYPE_CHECKING:
    from nodectl.client.command import GlobalOptions

ON, OFF, PARTLY = "on", "off", "partly"
_LEAST_MEMORY = 256  # MiB: with less, no session could mend the fence
_SAMPLE = 0.25  # seconds
_SERVICE = ".service"
_EACH, _ALL = "user", "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `nodectl fence` to the parser."""
    actions = parser.add_subparsers(dest="action", metavar="on|off|status")
    actions.add_parser(
        "on", help="fence login sessions, also after each boot; again after a change of the configuration",
        description="Fence login sessions.",
    )  # fmt: skip
    actions.add_parser("off", help="take everything back", description="Take the fence away.")
    shown = actions.add_parser(
        "status", help="tell what is fenced, what it uses, and what uses GPUs outside of jobs (the default)",
        description="Tell what is fenced.",
    )  # fmt: skip
    for one in (parser, shown):
        one.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")
    parser.epilog = (
        "The keys login_memory, login_weight, login_cgroup, login_outside and foreign_gpu_use configure it, and "
        "cpu_spec_list or core_spec_count which CPUs are kept for logins. Only root may turn it on and off."
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the action. Return 0. Raises Failed."""
    if arguments.action not in ("on", "off"):
        return _status(arguments)
    if os.geteuid() != 0:
        raise Failed(f"fence {arguments.action}: only root may")
    config = configured(arguments.settings.config)
    try:
        put(_on(config) if arguments.action == "on" else _off(config))
    except (OSError, ValueError) as error:
        raise Failed(f"fence {arguments.action}: {error}; `nodectl fence status` tells what is there") from None
    return 0


def _on(config: Config) -> list[str]:
    """Put the fence up, or renew it. Return what to tell. Raises Failed, OSError, ValueError."""
    path, of_systemd = corner.place(config)
    if not path:
        raise Failed("fence on: no cgroup2 file system is mounted; `nodectl doctor` tells more")
    before = _known(config)
    if before is not None and before.path != path:
        raise Failed(f"fence on: it is on at {before.path}; turn it off first: nodectl fence off")
    machine = topology.read()
    kept = specialised(machine, node.settings_of(config, machine)) & machine.online
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    share = corner.share_of(config, format_cpulist(cpus_of(kept)), memory)
    if 0 < share.memory < _LEAST_MEMORY:
        raise Failed(f"fence on: {share.memory} MiB for logins are too few: set login_memory, or a smaller real_memory")
    wanted = Corner(path, of_systemd, share, _free(config))
    os.makedirs(config.state_dir, mode=0o755, exist_ok=True)
    directory = whole_file.open_directory(config.state_dir)
    try:
        text = json.dumps(corner.fields_of(wanted)).encode()
        whole_file.write(directory, os.path.basename(corner.mark_of(config)), 0o600, (text,), synced=True)
    finally:
        os.close(directory)
    devices = detected_devices.of(config.gres)
    with corner.held(config, fcntl.LOCK_EX) as is_on:  # one renewal at a time, or each might remove the other's wall
        if is_on and of_systemd:
            fence_units.write(wanted)
        missing = corner.build(wanted, devices) if is_on else []
        if not is_on or corner.mark(config) != wanted:
            raise Failed("fence on: another `nodectl fence` ran at the same time; `nodectl fence status` tells more")
    said = _share(share.cpus, share.memory, share.weight, _memory_of(wanted))
    words = [f"logins are fenced in {path}: {said}; denied: {', '.join(one.key for one in devices) or 'no devices'}"]
    words += [f"not enforced, the kernel has no such file here: {', '.join(missing)}"] if missing else []
    if not share.cpus:
        words.append("no CPUs are kept for logins: core_spec_count = 2 keeps two cores; then restart the service")
    if not of_systemd:
        words.append(f"start sshd in it, so that sessions are born there: write its pid to {path}/cgroup.procs")
    return words


def _known(config: Config) -> Corner | None:
    """Return the corner of the mark, None without one or for a broken one, as a power cut leaves. Raises OSError."""
    try:
        return corner.mark(config)
    except ValueError:
        return None


def _free(config: Config) -> tuple[int, ...]:
    """Return the uids of root and of the users who stay outside. Raises Failed."""
    uids = {0}
    for name in config.login_outside:
        if name.endswith(_SERVICE):
            continue
        try:
            uids.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise Failed(f"login_outside: there is no user {name!r}") from None
    return tuple(sorted(uids))


def _share(cpus: str, memory: int | None, weight: int, memory_of: str) -> str:
    """Return the share of logins in words."""
    amount = f"{memory} MiB{' for each user' if memory_of == _EACH else ''}" if memory else "any memory"
    return f"{f'CPUs {cpus}' if cpus else 'all CPUs'}, {amount}, weight {weight}"


def _memory_of(one: Corner) -> str:
    return _EACH if one.of_systemd else _ALL


def _off(config: Config) -> list[str]:
    """Take the fence away. Return what to tell. Raises Failed, OSError, ValueError."""
    there = fence_units.present()
    with corner.held(config, fcntl.LOCK_EX) as is_on:  # the service, which renews the corner, waits for its mark
        if not is_on and not there:
            return ["the fence is off"]
        known = _known(config) or _guessed(config, has_units=bool(there))
        if there or known.of_systemd:  # a command that was killed may have left systemd with files that are gone
            fence_units.remove()
        left = corner.take_down(known) if known.path else ""
        if is_on:
            os.unlink(corner.mark_of(config))
            whole_file.sync(config.state_dir)
    return [left] if left else []


def _guessed(config: Config, *, has_units: bool) -> Corner:
    """Return the corner that `on` would make: its mark is broken or gone."""
    path, of_systemd = corner.place(config)
    return Corner(path, of_systemd or has_units, LoginShare("", 0, 0), ())


def _told(settings: "GlobalOptions") -> Any:
    session = Session(settings, start_private=False)
    try:
        return session.call("Fence")
    finally:
        session.close()


def _status(arguments: argparse.Namespace) -> int:
    found = state_of(_told(arguments.settings))
    if "json" in arguments:
        print(json.dumps(found, indent=2))
    else:
        put([*pairs(_rows(found)), *_of_foreign(found["foreign"])])
    return 0


def state_of(told: dict[str, Any]) -> dict[str, Any]:
    """Return what `nodectl fence status --json` prints, from the answer of the service and the corner's cgroup."""
    found = {"state": OFF, **{name: told[name] for name in ("trouble", "outside", "foreign", "looked")}}
    units = fence_units.present()
    if not told["corner"]:
        return found | {"state": PARTLY if units else OFF}
    one = corner.corner_of(told["corner"])
    is_whole = (
        os.path.isdir(one.path) and (not one.of_systemd or units == fence_units.texts(one)) and not told["trouble"]
    )
    before = corner.usage(one)
    began = time.monotonic()
    time.sleep(_SAMPLE)
    now = corner.usage(one)
    spent = max(now["cpu_usec"] - before["cpu_usec"], 0) / 1e6 / (time.monotonic() - began)
    return found | {
        "state": ON if is_whole else PARTLY,
        "cgroup": one.path,
        "cpus": one.share.cpus,
        "memory": one.share.memory or None,
        "memory_of": _memory_of(one),
        "weight": one.share.weight,
        "denied": told["devices"],
        **{name: now[name] for name in ("users", "sessions", "processes", "memory_used")},
        "cpus_used": round(spent, 2),
    }


def _rows(found: dict[str, Any]) -> list[tuple[str, object]]:
    mend = "; `nodectl fence on`, or off, makes it whole" if found["state"] == PARTLY else ""
    rows: list[tuple[str, object]] = [("fence", f"{found['state']}{mend}")]
    if found["trouble"]:
        rows.append(("trouble", found["trouble"]))
    if "cgroup" in found:
        rows += [
            ("cgroup", found["cgroup"]),
            ("may use", _share(found["cpus"], found["memory"], found["weight"], found["memory_of"])),
            ("may not open", ", ".join(found["denied"]) or "(no devices)"),
            ("inside", f"{found['users']} users, {found['sessions']} sessions, {found['processes']} processes"),
            ("uses", f"{found['cpus_used']} CPUs, {found['memory_used']} MiB"),
        ]  # fmt: skip
    return [*rows, ("outside", f"root and services{''.join(f', {name}' for name in found['outside'])}")]


def _of_foreign(uses: list[dict[str, Any]]) -> list[str]:
    lines = [f"{use['device']} is used outside of all jobs: {corner.words_of(use)}" for use in uses]
    return ["", *lines] if lines else []


def checks(settings: "GlobalOptions") -> Iterator[Check]:
    """Yield the findings of `nodectl doctor`, none without an answer of the service."""
    try:
        told = _told(settings)
    except Failed:  # other checks say why, or it is an older service
        return
    found = state_of(told)
    if found["state"] == PARTLY:
        yield Check(WARN, "fence", found["trouble"] or "it is only there in part", "nodectl fence on, or off")
    elif found["state"] == ON:
        yield Check(
            OK, "fence", f"logins: {_share(*(found[name] for name in ('cpus', 'memory', 'weight', 'memory_of')))}"
        )
    elif told["devices"]:
        yield Check(OK, "fence", "off: login sessions may open every device; `nodectl fence on` denies that")
    for use in found["foreign"]:
        advice = "ask for it to be run as a job, or end it"
        yield Check(WARN, use["device"], f"used outside of all jobs: {corner.words_of(use)}", advice)
