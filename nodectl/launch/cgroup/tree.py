"""The cgroup v2 tree of steps: place, names of files, and how a step's part is made, emptied and removed.

    <cgroup2 mount>/<base>/job_J/step_S/{stepd, user/{task_T, mpi, logins, visitors}, epilog}
    <cgroup2 mount>/<base>/{runners, notices/WAY-UID}

`cgroup/delegation.py` finds `base` and the controllers below it. Limits are written on `job_J` and on `user`; the stepd
sits beside `user`, so that emptying it never touches the stepd, which is charged to the job. A stepd that serves
several steps is charged to none: it is in `runners`, as is a stepd that waits for its only step. Typed access to the
files is cgroupspy's: its controllers are for v1, the classes here name v2's files. Its `nodes` module imports logging,
which doubles the price of every fork: no process imports it.
"""

import errno
import os

from cgroupspy.controllers import Controller
from cgroupspy.interfaces import DictFile, FlagFile, IntegerFile, ListFile, MultiLineIntegerFile

from nodectl.kernel import _kernel, pseudo_file, signals
from nodectl.kernel.processes import cgroup_of
from nodectl.model.step_number import step_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOUNTS = "/proc/self/mounts"
PRELOAD = "preload"  # below a step's `user`: the interpreter of --preload
MPI = "mpi"  # below a step's `user`: the server of its MPI plugin
LOGINS, VISITORS = "logins", "visitors"  # below it, too: login sessions that have joined; `nodectl enter`
NOTICES = "notices"  # below the base: what tells people of their jobs (`service/daemon/notices/`)
RUNNERS = "runners"  # below the base, beside the jobs: step runners that are kept between steps, or wait for one
_WITHOUT_CHILDREN = 2  # links of a directory of the kernel's: its name, and its own .


class Files(Controller):  # type: ignore[misc]  # cgroupspy has no types
    """Any set of v2 files. Paths are text here, while cgroupspy keeps file names as bytes."""

    def filepath(self, filename: "str | bytes") -> str:
        """Return the path of a file of this cgroup."""
        return f"{os.fsdecode(self.node.full_path)}/{os.fsdecode(filename)}"

    def get_property(self, filename: "str | bytes") -> str:
        """Read a file's text. Raises OSError."""
        return pseudo_file.read(self.filepath(filename)).decode("ascii").strip()

    def set_property(self, filename: "str | bytes", value: object) -> None:
        """Write a file in a single write(2). Raises OSError."""
        pseudo_file.write(self.filepath(filename), str(value).encode("ascii"))


class CoreFiles(Files):
    """The files of every v2 cgroup but the root: cgroups(7), kernel cgroup-v2 "Core Interface Files"."""

    procs = MultiLineIntegerFile("cgroup.procs")
    controllers = ListFile("cgroup.controllers", readonly=True)
    enabled = ListFile("cgroup.subtree_control", readonly=True)
    events = DictFile("cgroup.events", readonly=True)
    kill = FlagFile("cgroup.kill", writeonly=True)
    freeze = FlagFile("cgroup.freeze")


class Memory(Files):
    """Memory figures: kernel cgroup-v2, "Memory"."""

    current = IntegerFile("memory.current", readonly=True)
    peak = IntegerFile("memory.peak", readonly=True)
    events = DictFile("memory.events", readonly=True)


class Group:
    """A directory of the tree: the `node` asked by cgroupspy's controllers for the path."""

    __slots__ = ("full_path",)

    def __init__(self, path: str) -> None:
        self.full_path = path

    @property
    def core(self) -> CoreFiles:
        """The files every cgroup has."""
        return CoreFiles(self)

    @property
    def memory(self) -> Memory:
        """The memory controller's files."""
        return Memory(self)

    def enable(self, controllers: "Iterable[str]") -> None:
        """Enable controllers of this group for the groups below. Raises OSError."""
        words = " ".join(f"+{name}" for name in controllers)
        if words:
            self.core.set_property("cgroup.subtree_control", words)

    def write(self, files: "Mapping[str, str]") -> None:
        """Write files, a line at a time, as needed for files with a line for each device. Raises OSError."""
        for name, text in files.items():
            for line in text.split("\n"):
                self.core.set_property(name, line)

    def child(self, name: str) -> "Group":
        """Return the group of this name below this group."""
        return Group(f"{self.full_path}/{name}")

    def exists(self) -> bool:
        """Return True if the directory exists."""
        return self.has(".")

    def has(self, file: str) -> bool:
        """Return True if the cgroup has this file, which shows an enabled controller."""
        name, directory = pseudo_file.at(f"{self.full_path}/{file}")
        try:
            os.stat(name, dir_fd=directory)
        except OSError:
            return False
        return True

    def number(self) -> int:
        """Return the cgroup's id, 64 bits: the inode number of the directory. Raises OSError."""
        name, directory = pseudo_file.at(self.full_path)
        return os.stat(name, dir_fd=directory).st_ino

    def make(self) -> "Group":
        """Make the directory; an existing directory is as good. Returns the group itself."""
        name, directory = pseudo_file.at(self.full_path)
        try:
            os.mkdir(name, 0o755, dir_fd=directory)
        except FileExistsError:
            pass
        return self

    def remove(self) -> bool:
        """Remove the directory. Returns False while processes or children are there."""
        name, directory = pseudo_file.at(self.full_path)
        try:
            os.rmdir(name, dir_fd=directory)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def has_children(self) -> bool:
        """Return True while there are groups below. False when the directory is gone."""
        name, directory = pseudo_file.at(self.full_path)
        try:
            return os.stat(name, dir_fd=directory).st_nlink > _WITHOUT_CHILDREN
        except FileNotFoundError:
            return False

    def add(self, pid: int) -> None:
        """Move a process here; 0 is the caller. Resets the affinity to the cpuset's. Raises OSError."""
        self.core.set_property("cgroup.procs", pid)

    def populated(self) -> bool:
        """Return True while a live process is here or below; zombies do not count. False when the directory is gone."""
        try:
            return b"populated 1" in pseudo_file.read(f"{self.full_path}/cgroup.events")
        except FileNotFoundError:
            return False

    def is_frozen(self) -> bool:
        """Return True when everything here and below is frozen. False when the directory is gone."""
        try:
            return bool(self.core.events.get("frozen") == 1)
        except FileNotFoundError:
            return False

    def is_to_freeze(self) -> bool:
        """Return True when this group was told to freeze. False when the directory is gone.

        Groups above may freeze it, too.
        """
        try:
            return bool(self.core.freeze)
        except OSError:
            return False

    def kill_all(self) -> None:
        """Send SIGKILL to everything here and below: by cgroup.kill (Linux 5.14), else pid by pid."""
        try:
            self.core.kill = True
        except FileNotFoundError:
            if self.exists():
                self._kill_each()

    def _kill_each(self) -> None:
        for pid in self.pids():
            signals.send_listed(pid, signals.KILL, self.holds)

    def holds(self, pid: int) -> bool:
        """Return True when the process is here or below."""
        inside = self.full_path.removeprefix(find_mount())
        return f"{cgroup_of(pid)}/".startswith(f"{inside}/")

    def pids(self) -> list[int]:
        """Return the pids of all processes here and below."""
        found: list[int] = []
        top, start = pseudo_file.at(self.full_path)
        try:
            for directory, _, _, _ in os.fwalk(top, dir_fd=start):
                below = directory.removeprefix(top)
                found += Group(self.full_path + below).core.procs
        except OSError:
            pass  # directories go while we look
        return found

    def confine_devices(self, rules: "Sequence[Sequence[int]]") -> None:
        """Attach the device program, if the cgroup has none yet. Raises OSError."""
        fd = self.open()
        try:
            if not _kernel.device_programs(fd):
                _kernel.constrain_devices(fd, rules)
        finally:
            os.close(fd)

    def open(self) -> int:
        """Open the cgroup's directory, for `_kernel.fork_into`. The caller closes the descriptor."""
        return pseudo_file.open_at(self.full_path, os.O_RDONLY | os.O_DIRECTORY)

    def fork(self) -> int:
        """Fork a child born here. Raises OSError, also where the kernel has no such fork."""
        fd = self.open()
        try:
            return _kernel.fork_into(fd)
        finally:
            os.close(fd)


def make_step(
    path: str, controllers: "Iterable[str]", files: "Mapping[str, str]", device_rules: "Sequence[Sequence[int]]"
) -> None:
    """Make job_J with limits (`files`) and device rules, and step_S below. Raises OSError.

    `controllers`, which the base has enabled, are enabled all the way down.
    """
    job, step = Group(os.path.dirname(path)).make(), Group(path)
    job.enable(controllers)
    job.write(files)
    if device_rules:
        job.confine_devices(device_rules)
    step.make().enable(controllers)


def make_among(step: str, name: str, *, confined: bool) -> Group:
    """Make a cgroup among the processes of the step at this path, for a process from outside. Raises OSError.

    `confined`: the step's devices are confined; until they are, no process comes in. What comes in ends with the step.
    """
    user = Group(f"{step}/user")
    if confined:
        fd = user.open()
        try:
            if not _kernel.device_programs(fd):
                raise OSError(errno.EAGAIN, "the step has not begun yet")
        finally:
            os.close(fd)
    return user.child(name).make()


def find_mount() -> str:
    """Return the mount point of the cgroup2 hierarchy, "" without a mount.

    This is /sys/fs/cgroup (unified) or a directory beside v1 (hybrid).
    """
    with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            fields = line.split()
            if fields[2] == "cgroup2":
                return fields[1].encode().decode("unicode_escape") if "\\" in fields[1] else fields[1]
    return ""


def is_of_job(place: str, base: str) -> bool:
    """Return True for the cgroup of a job of ours and for all cgroups below."""
    return bool(base) and place.startswith(f"{base}/job_")


def is_of_notice(place: str, base: str) -> bool:
    """Return True for the cgroups in which mails and commands of --notify tell a user of jobs.

    Both run what the user wrote: sendmail may be a program that reads a file of the user's, with commands in it.
    """
    return bool(base) and place.startswith((f"{base}/{NOTICES}/command-", f"{base}/{NOTICES}/mail-"))


def step_path(base: str, job_id: int, step_id: int) -> str:
    """Return the path of a step below the path of the base directory."""
    return f"{base}/job_{job_id}/step_{step_word(step_id)}"
