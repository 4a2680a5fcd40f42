"""The services of the kernel, the surrounding container and the file systems for nodectl: findings of `nodectl doctor`.

Runs in the command's process, which has one thread, as its user. Every try is undone: one cgroup and one child during a
check, files without names.
"""

import errno
import os
import time
from collections.abc import Iterable, Iterator

import prctl

from nodectl.cli.checks.check import FAIL, OK, WARN, Check
from nodectl.kernel import _kernel
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import device_memory
from nodectl.launch.cgroup.constraints import cannot_decide_devices, is_memory_shared, wants_cgroups
from nodectl.launch.cgroup.tree import MOUNTS, Group, find_mount
from nodectl.model.config import Config
from nodectl.model.cpu_list import format_cpulist
from nodectl.placement.machine import detected_devices
from nodectl.placement.machine.declared_devices import Device
from nodectl.placement.machine.topology import read

# What each version brought, and what is done without it.
_KERNELS = (
    ((5, 7), WARN, "clone3 with CLONE_INTO_CGROUP", "tasks are moved into their cgroups after the fork"),
    ((5, 11), FAIL, "close_range with CLOSE_RANGE_CLOEXEC", "programs cannot be started without it"),
    ((5, 14), WARN, "cgroup.kill", "processes of a step are killed one by one"),
)
# Bits of linux/capability.h that the launch of other users' steps needs, and what is lost without them.
_CAPABILITIES = (
    (6, "CAP_SETGID", FAIL, "tasks cannot become their user"),
    (7, "CAP_SETUID", FAIL, "tasks cannot become their user"),
    (5, "CAP_KILL", FAIL, "other users' steps cannot be ended"),
    (1, "CAP_DAC_OVERRIDE", WARN, "directories that only users may enter are closed to the service"),
    (0, "CAP_CHOWN", WARN, "files cannot be given to users"),
    (8, "CAP_SETPCAP", WARN, "inheritable capabilities and securebits cannot be cleared"),
    (21, "CAP_SYS_ADMIN", WARN, "no mounts and no namespaces for steps"),
    (23, "CAP_SYS_NICE", WARN, "tasks cannot be given higher priority, nor be bound by others"),
    (24, "CAP_SYS_RESOURCE", WARN, "oom_score_adj cannot be lowered, hard limits not raised"),
)
_CONTROLLERS = (
    ("cpuset", "CPUs are bound by affinity alone, which a task can undo"),
    ("memory", "no limit on and no account of a step's memory"),
    ("pids", "no limit on a step's processes"),
    ("cpu", "no shares of CPU time"),
    ("io", "no limit on a step's input and output"),
)
# What a kernel or a seccomp filter without CLONE_INTO_CGROUP says; tasks are then moved after the fork.
_NO_BIRTH = (errno.EPERM, errno.E2BIG, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_REMOVE_TRIES = 100
_REMOVE_PAUSE = 0.005


def all_checks(config: Config) -> Iterator[Check]:
    """Yield every finding about the machine."""
    yield root()
    yield from kernel(os.uname().release)
    yield processors()
    yield from cgroups(config)
    yield from capabilities(_kernel.capabilities()[0], os.geteuid())
    yield subreaper()
    for name, path in (("runtime_dir", config.runtime_dir), ("state_dir", config.state_dir)):
        yield directory(name, path)


def checks_of_own(config: Config) -> Iterator[Check]:
    """Yield the findings for a user's own node."""
    yield from kernel(os.uname().release)
    yield processors()
    yield subreaper()
    for name, path in (("runtime_dir", config.runtime_dir), ("state_dir", config.state_dir)):
        yield directory(name, path, os.geteuid())


def root() -> Check:
    """Check whether the checks for root can run."""
    if os.geteuid() == 0:
        return Check(OK, "root", "running as root")
    return Check(WARN, "root", f"running as uid {os.geteuid()}", "run it as root: what needs root was not tried")


def kernel(release: str) -> Iterator[Check]:
    """Yield the deficiencies of a kernel of this release (uname -r)."""
    numbers = []
    for word in release.split(".")[:2]:
        digits = word[: next((place for place, c in enumerate(word) if not c.isdecimal()), len(word))]
        numbers.append(int(digits or 0))
    version = tuple(numbers)
    missing = [row for row in _KERNELS if version < row[0]]
    if not missing:
        yield Check(OK, "kernel", f"Linux {release}")
    for (major, minor), level, what, lost in missing:
        yield Check(level, "kernel", f"Linux {release} has no {what}: {lost}", f"use Linux {major}.{minor} or later")


def processors() -> Check:
    """Check whether the machine's CPUs can be read."""
    try:
        topology = read("/", os.sched_getaffinity(0))
    except (OSError, ValueError) as error:
        return Check(FAIL, "topology", f"cannot be read: {error}", "mount sysfs on /sys")
    usable = format_cpulist(os.sched_getaffinity(0))
    return Check(
        OK, "topology", f"{len(topology.sockets)} socket(s), {len(topology.cores)} core(s), usable CPUs {usable}"
    )


def cgroups(config: Config) -> Iterator[Check]:
    """Check the cgroup2 mount and the controllers, and as root make a test cgroup."""
    mount = find_mount()
    if not mount:
        advice = 'mount -t cgroup2 none /sys/fs/cgroup/unified, or set proctrack_type = "proctrack/linuxproc"'
        yield Check(FAIL if wants_cgroups(config) else WARN, "cgroup2", "not mounted", advice)
        return
    with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
        old = v1_controllers(lines)
    kind = "hybrid, beside cgroup v1" if old else "unified"
    yield Check(OK, "cgroup2", f"mounted on {mount} ({kind})")
    try:
        with open(f"{mount}/cgroup.controllers", encoding="ascii") as file:
            available = file.read().split()
    except OSError as error:
        yield Check(WARN, "controllers", f"{error.filename}: {error.strerror}")
    else:
        yield from controllers(available, old)
        if device_memory.CONTROLLER not in available and is_memory_shared(_devices(config)):
            counted = "a job's part of a GPU's memory is counted, and nothing enforces it: cgroup2 has no dmem"
            yield Check(
                WARN, "GPU memory", counted, "use Linux 6.14 or later, with a driver that has regions in dmem.capacity"
            )
    if os.geteuid() == 0:
        yield fork_into_cgroup(mount)
        yield device_programs()


def _devices(config: Config) -> tuple[Device, ...]:
    try:
        return detected_devices.of(config.gres, sharing=config.gpu_sharing)
    except ValueError:  # another check says what is wrong
        return ()


def v1_controllers(mounts: Iterable[str]) -> set[str]:
    """Return the mount options of every cgroup v1 hierarchy, including controllers; empty on a unified machine."""
    return {word for line in mounts if (fields := line.split())[2] == "cgroup" for word in fields[3].split(",")}


def controllers(available: Iterable[str], old: Iterable[str]) -> Iterator[Check]:
    """Yield the controllers of cgroup2 and a finding for each missing controller. `old`: the controllers held by v1."""
    have = set(available)
    known = [name for name, _ in _CONTROLLERS if name in have]
    if known:
        yield Check(OK, "controllers", " ".join(known))
    held = {"io" if name == "blkio" else name for name in old}
    for name, lost in _CONTROLLERS:
        if name not in have:
            why = "belongs to cgroup v1" if name in held else "is not there"
            advice = "boot with cgroup_no_v1=all systemd.unified_cgroup_hierarchy=1" if name in held else ""
            yield Check(WARN, "controllers", f"{name} {why}, not enforced: {lost}", advice)


def fork_into_cgroup(mount: str) -> Check:
    """Make a cgroup below this process's cgroup, fork a child into the cgroup, and remove the cgroup."""
    place = f"{cgroup_of().rstrip('/')}/nodectl-doctor.{os.getpid()}"
    group = Group(f"{mount}{place}")
    try:
        os.mkdir(group.full_path, 0o755)
    except OSError as error:
        advice = "run it where the cgroup tree is writable"
        return Check(FAIL, "cgroup test", f"make {group.full_path}: {error.strerror}", advice)
    try:
        born = _born_in(group)
    except OSError as error:
        level = WARN if error.errno in _NO_BIRTH else FAIL
        return Check(level, "cgroup test", f"fork into {group.full_path}: {error.strerror}", "allow clone3 (seccomp)")
    finally:
        removed = _remove(group)
    if born != place:
        return Check(FAIL, "cgroup test", f"a child forked into {place} says it is in {born or 'nothing'}")
    if not removed:
        return Check(FAIL, "cgroup test", f"cannot remove {group.full_path}")
    return Check(OK, "cgroup test", f"made {group.full_path}, forked a child into it, removed it")


def device_programs() -> Check:
    """Check whether steps can be kept from devices: load a program into the kernel, without attaching the program."""
    why = cannot_decide_devices()
    if not why:
        return Check(OK, "devices", "a step can be kept from devices that other jobs hold")
    return Check(WARN, "devices", f"steps can open each other's devices: {why}", "use Linux 4.15, allow bpf(2)")


def _born_in(group: Group) -> str:
    """Return the cgroup of a child after a fork into `group`. Raises OSError."""
    descriptor = group.open()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = _kernel.fork_into(descriptor)
        if pid == 0:
            try:
                os.write(writer, os.fsencode(cgroup_of()))
            finally:
                os._exit(0)
        os.close(writer)
        writer = -1
        said = b""
        while part := os.read(reader, 4096):
            said += part
        os.waitpid(pid, 0)
    finally:
        for fd in (descriptor, reader, writer):
            if fd >= 0:
                os.close(fd)
    return os.fsdecode(said)


def _remove(group: Group) -> bool:
    # A child leaves its cgroup a moment after it has been waited for.
    for _ in range(_REMOVE_TRIES):
        if group.remove():
            return True
        time.sleep(_REMOVE_PAUSE)
    return False


def capabilities(effective: int, uid: int) -> Iterator[Check]:
    """Yield the missing capabilities of root, as in a container; `effective` is the mask of the caller `uid`."""
    if uid != 0:
        return
    missing = [row for row in _CAPABILITIES if not effective >> row[0] & 1]
    if not missing:
        yield Check(OK, "capabilities", "all that are needed")
    for _, name, level, lost in missing:
        yield Check(level, "capabilities", f"{name} is missing: {lost}", "give it to the container or the unit")


def subreaper() -> Check:
    """Check whether a step's runner can adopt orphans of the step: prctl(2), PR_SET_CHILD_SUBREAPER."""
    try:
        before = prctl.get_child_subreaper()
        prctl.set_child_subreaper(1)
        prctl.set_child_subreaper(before)
    except OSError as error:
        return Check(FAIL, "prctl", f"become a subreaper: {error.strerror}", "allow prctl (seccomp)")
    return Check(OK, "prctl", "can be a subreaper")


def directory(name: str, path: str, owner: int = 0) -> Check:
    """Check whether a directory of the configuration is writable only by `owner`, or can be made."""
    here = path
    while not os.path.exists(here):
        here = os.path.dirname(here) or "/"
    try:
        status = os.stat(here)
        if here == path and (status.st_uid != owner or status.st_mode & 0o022):
            who = "root" if owner == 0 else "its user"
            return Check(
                FAIL, name, f"{path}: others than {who} may write there", f"chown {owner} {path}; chmod go-w {path}"
            )
        if os.geteuid() == owner:
            _write_in(here)
    except OSError as error:
        return Check(
            FAIL, name, f"{path}: {here}: {error.strerror}", f"set {name} to a directory that can be written to"
        )
    state = "is there" if here == path else "is not there yet and can be made"
    return Check(OK, name, f"{path} {state}")


def _write_in(path: str) -> None:
    """Make a file without a name, or a named file where the file system requires names. Raises OSError."""
    try:
        os.close(os.open(path, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        probe = f"{path}/.nodectl-doctor.{os.getpid()}"
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.unlink(probe)
