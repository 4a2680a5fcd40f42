"""JoinLogin and Login: login sessions join a job of their user, among the processes of its first step.

PAM runs `nodectl login --pam` as root when a session begins (`nodectl/client/pam_session.py`). The command calls
JoinLogin. No message names a process: the kernel tells which one has connected, and the session's process is its
parent, which waits for it. Users choose the job with Login; a choice is kept until its job ends, or the daemon does.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from nodectl import messages
from nodectl.kernel.processes import cgroup_of, parent_of
from nodectl.launch.cgroup import tree
from nodectl.launch.cgroup.delegation import Base
from nodectl.launch.task import environment
from nodectl.model.cpu_list import cpus_of
from nodectl.model.step import Step
from nodectl.model.wire import framing, peer_process
from nodectl.model.wire.dispatch import Call, Refused
from nodectl.model.wire.shape import Optional, integer
from nodectl.placement.binding.devices import VISIBLE
from nodectl.service.daemon.admission.turns import Turns
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.steps.live import LiveStep

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from nodectl.model.wire.shape import Shape

JOIN_LOGIN: "Shape" = {"uid": integer(1, 2**32 - 2)}
LOGIN: "Shape" = {"job": Optional(integer(0, 2**32 - 1))}
_INIT = 1
_OF_SERVICE = ".service"  # ends the name of a unit whose processes are no login sessions
_THREADS = 2  # of logins alone: a kernel that takes long over them holds up nothing else, and nothing else them
_MOST = 32  # sessions of one user that begin at the same time
_TOLD = ("SLURM_", "SLURMD_", "NODECTL_", *VISIBLE)


class Logins:
    """The methods of the node for login sessions. `base` is the place of jobs' cgroups."""

    def __init__(self, base: Base, registry: Registry) -> None:
        self._base = base
        self._registry = registry
        self._chosen: dict[int, int] = {}  # by user: the job that their sessions join, as long as it runs
        self._begin: dict[int, int] = {}  # by user: the sessions that are being moved, or wait for it
        self._turns = Turns()
        self._threads: Executor | None = None

    async def join(self, call: Call) -> Mapping[str, object]:
        """Move the process of a beginning session into a job of the user. Only for root.

        The reply has the job, 0 for none, and then why; no word if the user has no job.
        """
        if call.peer.uid or os.geteuid():
            raise Refused("NotPermitted", "only root moves login sessions, and only a service of root's")
        uid, session = call.parameters["uid"], _Session(call.peer, self._base.mount)
        if tree.is_of_job(session.place, self._base.path):  # as of su(1) in a job: it stays
            session.close()
            number = session.place[len(self._base.path) :].split("/")[1].removeprefix("job_")
            return {"job": int(number), "why": ""}
        if session.place.endswith(_OF_SERVICE):
            session.close()
            why = f"process {session.pid} is in {session.place}: PAM is to call this after pam_systemd"
            raise Refused("WrongState", why)
        found = self._open_to(uid)
        steps = [live.step for live in found if not live.suspended]  # a suspended job would freeze the session
        joined, why = await self._moved(uid, session, steps)
        if joined is None:
            return {"job": 0, "why": why or (f"job {found[0].step.job_id} is suspended" if found else "")}
        words = f"a login session of {joined.user_name}, process {session.pid}, has joined job {joined.job_id}"
        messages.tell("login-joined", words, job=joined.job_id, uid=uid)
        return {"job": joined.job_id, "why": ""}

    async def _moved(self, uid: int, session: "_Session", steps: list[Step]) -> tuple[Step | None, str]:
        """Move the session's process into one of these steps, in a thread: the kernel may wait until other CPUs have
        come to rest. Return the step, or None and why. Each user has one session at a time moved.
        """
        count = self._begin.get(uid, 0)
        if not steps or count >= _MOST:
            session.close()
            return None, f"{_MOST} other sessions of yours begin at this moment" if steps else ""
        self._begin[uid] = count + 1
        try:
            async with self._turns.of(uid):
                return await asyncio.get_running_loop().run_in_executor(self._executor(), session.join, steps)
        finally:
            self._begin[uid] -= 1
            if not self._begin[uid]:
                del self._begin[uid]

    def _executor(self) -> "Executor":
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor  # for the first session that joins a job

            self._threads = ThreadPoolExecutor(_THREADS, "logins")
        return self._threads

    def login(self, call: Call) -> Mapping[str, object]:
        """Choose the job that the caller's next sessions join; 0 for the newest. Return what they join, and where the
        caller is.
        """
        uid, wanted = call.peer.uid, call.parameters.get("job")
        if os.geteuid():
            raise Refused("NotPermitted", "a node of your own moves no login sessions: the machine's service does")
        mine = self._open_to(uid)
        if wanted and wanted not in (live.step.job_id for live in mine):
            raise Refused("NoSuchJob", f"no job {wanted} of yours runs here", subject="unknown")
        if wanted is not None:
            self._chosen = {user: job for user, job in self._chosen.items() if user != uid and self._runs(job)}
            if wanted:
                self._chosen[uid] = wanted
            mine = self._open_to(uid)
        around = self._around(call.peer, mine)
        job = mine[0].step.job_id if mine else 0
        return {
            "job": job, "chosen": bool(job) and self._chosen.get(uid) == job,
            "inside": 0 if around is None else around.job_id, "environment": {} if around is None else _told(around),
        }  # fmt: skip

    def _open_to(self, uid: int) -> list[LiveStep]:
        """Return the first steps of the user's running jobs: the chosen job, then the newest."""
        chosen = self._chosen.get(uid, 0)
        found = [
            live
            for live in self._registry.live.values()
            if live.step.uid == uid and live.step.is_first and live.step.cgroup and not live.step.within
            if live.pid and not live.in_prolog
        ]
        return sorted(found, key=lambda live: (live.step.job_id == chosen, live.step.job_id), reverse=True)

    def _runs(self, job: int) -> bool:
        return self._registry.first(job) is not None

    def _around(self, peer: framing.Peer, mine: Iterable[LiveStep]) -> Step | None:
        """Return the first step of the caller's job whose processes the caller is among, None for none."""
        try:
            place = peer_process.place_of(peer)
        except peer_process.PeerGone:
            return None
        return next((live.step for live in mine if f"{place}/".startswith(f"{live.step.cgroup}/")), None)


class _Session:
    """The process of a login session: the parent of the process that has connected. Raises Refused.

    The parent waits for its child. While the child lives and has this parent, the number means the same process. The
    parent of an orphan is process 1, or one that adopts orphans: the user's service manager, or a process of root's,
    such as a step runner. A child is born in its parent's cgroup, and one that was adopted is in another.
    """

    def __init__(self, peer: framing.Peer, mount: str) -> None:
        self.pidfd = self._helper = -1
        self._mount = mount
        self._helper_pid = peer.pid
        try:
            proven = peer_process.place_of(peer)
            self.pid = parent_of(peer.pid)
            if proven and self.pid > _INIT:
                self.pidfd = os.pidfd_open(self.pid)
                self._helper = os.dup(peer.pidfd)
            self.place = cgroup_of(self.pid)
            is_roots = os.stat(f"/proc/{self.pid}").st_uid == 0
            is_parent = is_roots and self.place == proven and self._begins()
        except (OSError, peer_process.PeerGone):
            is_parent = False
        if self.pidfd < 0 or not is_parent:
            self.close()
            raise Refused("WrongState", f"process {peer.pid} is no child of a login session's process, or has ended")

    def _begins(self) -> bool:
        """Return True while the process waits for its child, which wants to know the job."""
        try:
            is_parent = parent_of(self._helper_pid) == self.pid
        except OSError:
            return False
        return is_parent and framing.runs(self._helper) and framing.runs(self.pidfd)

    def join(self, steps: Iterable[Step]) -> tuple[Step | None, str]:
        """Move the process into the first of these steps that takes it, and close the descriptors. Return the step, or
        None and why the last one did not.
        """
        why = ""
        try:
            for step in steps:
                try:
                    self._move(f"{self._mount}{step.cgroup}", step)
                except OSError as error:  # the job ends just now, or has not begun
                    why = f"job {step.job_id}: {error.strerror}"
                else:
                    return step, ""
            return None, why
        finally:
            self.close()

    def _move(self, path: str, step: Step) -> None:
        """Move the process among those of the step at this path, with the job's CPUs. Raises OSError.

        The kernel takes a number. The process waits for its child, so the number is still its own. A child that has
        given up has told PAM that the session is in no job: then it is in none.
        """
        group = tree.make_among(path, tree.LOGINS, confined=bool(step.device_rules))
        if not self._begins():
            raise OSError(errno.ESRCH, "the session has ended, or no longer waits")
        before = os.sched_getaffinity(self.pid)
        group.add(self.pid)
        with contextlib.suppress(OSError):  # where a cpuset confines the job, the process has its CPUs already
            os.sched_setaffinity(self.pid, cpus_of(step.allocation))
        if framing.runs(self._helper):
            return
        if framing.runs(self.pidfd):
            tree.Group(f"{self._mount}{self.place}").add(self.pid)
            os.sched_setaffinity(self.pid, before)
        raise OSError(errno.ESRCH, "the session no longer waits")

    def close(self) -> None:
        """Close the descriptors of both processes."""
        for fd in (self.pidfd, self._helper):
            if fd >= 0:
                os.close(fd)
        self.pidfd = self._helper = -1


def _told(step: Step) -> dict[str, str]:
    """Return the variables of a job for a shell that has joined: Slurm's, ours, and those of all tasks' devices."""
    every = {**step.environment, **environment.announced(step), **environment.for_step(step)}
    for name in VISIBLE if step.task_variables else ():
        seen = chain.from_iterable(one[name].split(",") for one in step.task_variables if one.get(name))
        every[name] = ",".join(dict.fromkeys(seen))
    return {name: value for name, value in every.items() if name.startswith(_TOLD)}
