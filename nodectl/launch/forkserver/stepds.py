"""Chooses the process for a step, in `Stepds.start`: a waiting warm runner, the spare, or a newly forked stepd."""

import _socket
import os
import sys

from nodectl import messages
from nodectl.launch.cgroup import tree
from nodectl.launch.confine import confinement
from nodectl.launch.confine.confinement import PROGRAMS
from nodectl.launch.stepd import main as stepd
from nodectl.launch.stepd.orders import Orders
from nodectl.launch.stepd.start import NO_CLONE_INTO_CGROUP
from nodectl.plugin_host.loader import PluginRefused
from nodectl.spank.stack import Stack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from nodectl.launch.forkserver.runners import Runners, Whose
    from nodectl.launch.forkserver.spare import Fit
    from nodectl.plugin_host.node_plugins import NodePlugins
    from nodectl.spank.plugin_store import PluginStore

LOCK = 4  # where the first order's descriptors are put, this and PROGRAMS


class Stepds:
    """The data with which each stepd starts, and the way to warm runners."""

    __slots__ = ("_channel", "_followed_by", "_mount", "_node", "_runners", "_store")

    def __init__(
        self, channel: "_socket.socket", node: "NodePlugins", mount: str, store: "PluginStore", runners: "Runners"
    ) -> None:
        self._channel = channel
        self._node = node
        self._mount = mount
        self._store = store
        self._runners = runners
        self._followed_by: tuple[tree.Group, Fit, NodePlugins] | None = None  # the spare that the last step is to have

    def start(self, data: bytes, request: "Mapping[str, object]", fds: "list[int]") -> "Mapping[str, object]":
        """Have a stepd serve the order. Return the answer to the daemon; never returns in a new stepd."""
        step, secure = str(request["step"]), str(request["secure"])
        # In a probe run the probe stands beside each call of a plugin, and no process is kept.
        keep = None if Stack.probe is not None else request["keep"]
        whose = None if keep is None else (int(str(keep)), secure)
        try:
            if whose is not None and (pid := self._runners.serve(data, fds, whose)):
                return {"step": step, "pid": pid, "waited": True}
            confinement.load(PROGRAMS, secure)
            node = self._node.with_container(str(request["container_plugin"]))
            if Stack.probe is None:
                self._store.make_ready(request["stack"])  # type: ignore[arg-type]  # our own daemon's words
            pid = 0
            if whose is not None and self._runners.has_room(whose[0]):
                pid = self._fork_one_to_keep(request, fds, node, whose)
            if not pid:
                pid = self._spare_or_fork(data, request, fds, node)
        except PluginRefused as refused:
            return {"step": step, "error": str(refused)}
        except OSError as error:
            what = f"start a step runner: {error.strerror}"
            return {"step": step, "error": f"{what}: {error.filename}" if error.filename else what}
        return {"step": step, "pid": pid}

    def _fork_one_to_keep(
        self, request: "Mapping[str, object]", fds: "list[int]", node: "NodePlugins", whose: "Whose"
    ) -> int:
        """Fork a stepd which may serve further steps. Return 0 if the kernel does not fork into cgroups."""
        group = self._runners_group(request).make() if request["cgroup"] else None
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            pid = os.fork() if group is None else group.fork()
            if pid == 0:
                ours.close()
                self._become_stepd(request, fds, node, Orders(theirs, self._runners.seconds))
        except OSError as error:
            ours.close()
            theirs.close()
            if group is None or error.errno not in NO_CLONE_INTO_CGROUP:
                raise
            return 0
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # it has ended already; or without descriptors it serves only this step
            ours.close()
            theirs.close()
            return pid
        self._runners.add(pid, pidfd, whose, ours, theirs)
        return pid

    def prepare(self) -> None:
        """After the answer: fork the spare, if wanted."""
        wanted, self._followed_by = self._followed_by, None
        if wanted is None or not self._runners.spare.is_wanted():
            return
        self._runners.spare.let_step_begin(self._channel)
        group, fit, node = wanted
        try:
            link = self._runners.spare.fork(group, fit)
        except OSError:
            return  # the next step does without
        if link is not None:
            self._become_spare(link, node)

    def _spare_or_fork(
        self, data: bytes, request: "Mapping[str, object]", fds: "list[int]", node: "NodePlugins"
    ) -> int:
        pid = 0
        if request["cgroup"] and Stack.probe is None:
            fit = str(request["secure"]), str(request["container_plugin"]), self._store.rows
            pid = self._runners.spare.serve(data, fds, fit)
            self._followed_by = self._runners_group(request), fit, node
        return pid or self._fork_one(request, fds, node)

    def _runners_group(self, request: "Mapping[str, object]") -> tree.Group:
        """Return the cgroup of processes charged to no job."""
        return tree.Group(f"{self._mount}{request['runners']}")

    def _fork_one(self, request: "Mapping[str, object]", fds: "list[int]", node: "NodePlugins") -> int:
        """Fork a stepd for this step alone, into a cgroup of the step."""
        group = None
        if request["cgroup"]:
            group = tree.Group(f"{self._mount}{request['cgroup']}").make()
        try:
            pid = os.fork() if group is None else group.fork()
        except OSError as error:
            if group is None or error.errno not in NO_CLONE_INTO_CGROUP:
                raise
            pid = os.fork()
            if pid == 0:
                _enter_or_end(group)
        if pid == 0:
            self._become_stepd(request, fds, node, None)
        return pid

    def _become_stepd(
        self, request: "Mapping[str, object]", fds: "list[int]", node: "NodePlugins", orders: Orders | None
    ) -> "NoReturn":
        """In the child: run the stepd."""
        self._close()
        stepd.main(request, fds, node, self._mount, self._store, orders)

    def _become_spare(self, link: "_socket.socket", node: "NodePlugins") -> "NoReturn":
        """In the child: run the spare, then the stepd."""
        try:
            self._runners.spare.settle()
            self._close()
            request, fds, ahead = self._runners.spare.wait(link, self._mount)
            stepd.main(request, fds, node, self._mount, self._store, None, ahead)
        except BaseException:  # the top of a process, which must not return: it would be a second forkserver
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)

    def _close(self) -> None:
        """In a child: close everything of the forkserver."""
        self._channel.close()
        os.close(LOCK)
        os.close(PROGRAMS)
        self._runners.let_go()


def _enter_or_end(cgroup: tree.Group) -> None:
    """Enter the cgroup, in a stepd which the kernel has not forked into the cgroup. End the process on failure.

    It must not return then, because it would serve the channel as a second forkserver.
    """
    try:
        cgroup.add(0)
    except OSError as error:
        messages.to_log(f"nodectl stepd: enter its cgroup: {error.strerror}", "runner-cannot-begin")
        os._exit(1)
