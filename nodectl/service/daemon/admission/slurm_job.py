"""The job of Slurm's of a calling process, and the resources of this machine available through this job.

All of it comes from the kernel. The caller is distinguished from later processes with the same number
(`wire/peer_process.py`); only root decides in which cgroup the process is, where directories of Slurm's belong to root.
Nothing is taken from the caller's words, or from Slurm's variables. Runs in the daemon, as root.
"""

import os
import stat

from nodectl.kernel import pseudo_file
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import slurms, tree
from nodectl.model.config import Config
from nodectl.model.cpu_list import mask_of, mask_of_list
from nodectl.model.value_class import dataclass
from nodectl.model.wire import peer_process
from nodectl.model.wire.dispatch import Refused
from nodectl.model.wire.framing import Peer

_LIMITS = {
    "Max cpu time": "CPU", "Max file size": "FSIZE", "Max data size": "DATA", "Max stack size": "STACK",
    "Max core file size": "CORE", "Max resident set": "RSS", "Max processes": "NPROC", "Max open files": "NOFILE",
    "Max locked memory": "MEMLOCK", "Max address space": "AS",
}  # fmt: skip
_SOFT = 26  # the column
_NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "user", "cgroup")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job of Slurm's on this machine.

    `place`: the path of the cgroup in which the job's steps here may have theirs. `cpus`: the mask of the CPUs that the
    caller's cgroup may use. `memory`: the limit of the cgroups around `place`, in MiB; 0 for none. `hard_limits`: the
    caller's, by names without RLIMIT_, -1 for infinity.
    """

    number: int
    place: str
    cpus: int
    memory: int
    hard_limits: dict[str, int]


def scope_of(config: Config) -> str:
    """Return the cgroup of Slurm's jobs on this node, "" for none."""
    return config.slurm_scope.replace("%n", config.node_name)


class SlurmJobs:
    """The jobs of Slurm's on the node. `mount`: the cgroup2 mount."""

    def __init__(self, config: Config, mount: str, *, has_cgroups: bool) -> None:
        self._mount = mount
        self._scope = scope_of(config)
        self._why = "" if self._scope else "the configuration names no slurm_scope"
        if self._scope and not has_cgroups:
            self._why = "this service tracks steps without cgroups"

    def of(self, peer: Peer) -> SlurmJob:
        """Return the caller's job. Raises Refused with a single-line reason where the job's steps cannot run here."""
        if self._why:
            raise _no(self._why)
        if peer.uid == 0:
            raise _no("root has no need of a job of Slurm's")
        if not _is_certain(peer):
            raise _no("which process asks cannot be told for certain")
        try:
            found = self._of_process(peer.pid)
        except OSError as error:
            raise _no(f"process {peer.pid}: {error.filename or ''}: {error.strerror}") from None
        if not peer.lives():  # the values read may belong to a later process
            raise _no("the process that asks has ended")
        return found

    def _of_process(self, pid: int) -> SlurmJob:
        """Return the job of a process. Raises Refused, OSError."""
        cgroup = cgroup_of(pid)
        found = slurms.place_of(cgroup, self._scope)
        if found is None:
            raise _no(f"process {pid} is in no task of Slurm's below {self._scope}, but in {cgroup or '/'}")
        number, place = found
        _must_be_roots(self._mount, place, self._scope)
        _must_see_the_same(pid)
        return SlurmJob(number, place, self._cpus(pid, cgroup), self._memory(place), _hard_limits(pid))

    def _cpus(self, pid: int, cgroup: str) -> int:
        group = tree.Group(self._mount + cgroup)
        if group.has("cpuset.cpus.effective"):
            return mask_of_list(group.core.get_property("cpuset.cpus.effective"))
        return mask_of(os.sched_getaffinity(pid))

    def _memory(self, place: str) -> int:
        limits = []
        while len(place) > len(self._scope):
            group = tree.Group(self._mount + place)
            if group.has("memory.max") and (text := group.core.get_property("memory.max")).isdecimal():
                limits.append(int(text) // _MIB)
            place = os.path.dirname(place)
        return min(limits, default=0)


def _is_certain(peer: Peer) -> bool:
    try:
        return bool(peer_process.place_of(peer)) and peer.lives()
    except peer_process.PeerGone:
        return False


def _must_be_roots(mount: str, place: str, scope: str) -> None:
    """Raise Refused where a directory on the way is not root's alone. Raises OSError.

    The owner of such a directory could choose the processes in it.
    """
    while len(place) >= len(scope):
        status = os.lstat(mount + place)
        if status.st_uid != 0 or status.st_mode & _OTHERS_WRITE:
            raise _no(f"the cgroup {place} is not root's alone")
        place = os.path.dirname(place)


def _must_see_the_same(pid: int) -> None:
    """Raise Refused where the process has a different root directory or different namespaces. Raises OSError.

    Our steps see this service's files, network and processes. A job with different ones (a /tmp of its own, a
    container) would not include such a step.
    """
    # Never looked at itself: a stat(2) of a root directory of the user's may wait for a file system of the user's.
    if os.readlink(f"/proc/{pid}/root") != os.readlink("/proc/self/root"):
        raise _no(f"process {pid} has another root directory than this service")
    for name in _NAMESPACES:
        if os.readlink(f"/proc/{pid}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}"):
            raise _no(f"process {pid} has another namespace ({name}) than this service")


def _hard_limits(pid: int) -> dict[str, int]:
    """Return the hard limits from proc(5); prlimit(2) needs a capability missing for root in a container. Raises
    OSError.
    """
    limits = {}
    for line in pseudo_file.read(f"/proc/{pid}/limits").decode("ascii").splitlines():
        name = _LIMITS.get(line[:_SOFT].strip())
        if name is not None:
            hard = line[_SOFT:].split()[1]
            limits[name] = int(hard) if hard.isdecimal() else -1
    return limits


def _no(why: str) -> Refused:
    return Refused("NotPermitted", f"no steps of a job of Slurm's: {why}", exit_status=1)
