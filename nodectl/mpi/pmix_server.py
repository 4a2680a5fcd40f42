"""The PMIx server of one step: OpenPMIx's library, in a process of the step's user.

Two processes: one is the library's, the other is the way to it (`nodectl/mpi/entrance.py`), and removes what the
programs have left in directories that are the step's own. Either may be killed; the other one does what is left to do.

The library believes whoever knows the name of the tasks' namespace: so that is random, and only the tasks' environment
has it.
"""

import contextlib
import ctypes
import os
import select
import shutil
import socket
import sys
import tempfile

from nodectl.mpi import entrance, openpmix
from nodectl.mpi.openpmix import DONE, NOT_FOUND, NOT_SUPPORTED, SUCCESS, Library, Module, Proc
from nodectl.mpi.words import Given, name_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PLACES = ("/tmp", "/dev/shm")
_RANDOM = 16


class Server:
    """The library at work."""

    def __init__(self, given: Given, directory: str, listens: "Callable[[], None]") -> None:
        """`listens` is called when the library listens. Raises what that raises, openpmix.Failed."""
        self._given = given
        self._library = Library()
        self._name = f"nodectl-{given.job}-{os.urandom(_RANDOM).hex()}".encode("ascii")
        self._module = self._make_module()
        made = openpmix.infos({"pmix.srvr.tmpdir": directory, "pmix.sys.tmpdir": directory})
        self._library.call("PMIx_server_init", ctypes.byref(self._module), *made)
        listens()
        self._register(directory)

    def _make_module(self) -> Module:
        """What the library calls, in a thread of its own."""
        module = Module()
        module.client_connected = openpmix.CLIENT(self._connected)
        module.client_finalized = openpmix.CLIENT(self._finalized)
        module.abort = openpmix.ABORT(self._abort)
        module.fence_nb = openpmix.FENCE(_fence)
        module.direct_modex = openpmix.DIRECT_MODEX(lambda *_: NOT_FOUND)
        module.spawn = openpmix.SPAWN(self._spawn)
        module.connect = module.disconnect = openpmix.CONNECT(lambda *_: DONE)
        module.register_events = openpmix.REGISTER(lambda *_: DONE)
        module.deregister_events = openpmix.DEREGISTER(lambda *_: DONE)
        return module

    def _register(self, directory: str) -> None:
        tasks, host = self._given.tasks, os.uname().nodename
        ranks = ",".join(map(str, range(tasks)))
        own = f"{directory}/job"
        os.mkdir(own, 0o700)
        made = openpmix.infos(
            {
                "pmix.univ.size": tasks,
                "pmix.job.size": tasks,
                "pmix.max.size": tasks,
                "pmix.local.size": tasks,
                "pmix.node.size": tasks,
                "pmix.num.slots": tasks,
                "pmix.num.nodes": 1,
                "pmix.job.napps": 1,
                "pmix.appnum": 0,
                "pmix.lldr": 0,
                "pmix.aldr": 0,
                "pmix.lpeers": ranks,
                "pmix.nmap": self._library.folded("PMIx_generate_regex", host),
                "pmix.pmap": self._library.folded("PMIx_generate_ppn", ranks),
                "pmix.jobid": self._name.decode("ascii"),
                "pmix.spawned": False,
                "pmix.tmpdir": directory,
                "pmix.nsdir": own,
            }
        )
        self._library.call("PMIx_server_register_nspace", self._name, tasks, *made, None, None)
        for rank in range(tasks):
            proc = Proc(self._name, rank)
            self._library.call(
                "PMIx_server_register_client", ctypes.byref(proc), os.getuid(), os.getgid(), None, None, None
            )

    def announce(self, beyond: "dict[str, str]") -> None:
        """What the tasks' environment has, but for the number of each. Raises openpmix.Failed."""
        words = [f"{name}={value}" for name, value in beyond.items()]
        for word in [*self._library.variables(Proc(self._name, 0)), *words]:
            if not word.startswith("PMIX_RANK=") and "\n" not in word:
                self._given.tell(f"env {word}")
        self._given.tell("ready")

    def finish(self) -> None:
        """The step is over."""
        self._library.call("PMIx_server_finalize")

    def _connected(self, proc: "ctypes._Pointer[Proc]", *_: object) -> int:
        self._given.tell(f"within {proc.contents.rank}")
        return DONE

    def _finalized(self, proc: "ctypes._Pointer[Proc]", *_: object) -> int:
        self._given.tell(f"without {proc.contents.rank}")
        return DONE

    def _abort(self, proc: "ctypes._Pointer[Proc]", _: object, status: int, *__: object) -> int:
        self._given.tell(f"abort {proc.contents.rank} {status}")
        return DONE

    def _spawn(self, proc: "ctypes._Pointer[Proc]", *_: object) -> int:
        self._given.tell(f"spawn {proc.contents.rank}")
        return NOT_SUPPORTED


def _fence(  # as the library calls it
    _: object, __: int, ___: object, ____: int, data: int, size: int, tell: "Callable[..., None]", caller: int
) -> int:
    """All are on this node, so what they have said is what there is."""
    tell(SUCCESS, data, size, caller, None, None)
    return SUCCESS


def _serve(given: Given, directories: "list[str]", private: socket.socket, other: socket.socket) -> int:
    """The library's process. `other`: the end of this means that the other process has gone."""

    def hand_over() -> None:
        with entrance.replace_listener(private) as listener:
            socket.send_fds(other, [b"\0"], [listener.fileno()])

    beyond = {}
    if len(directories) > 1:
        beyond = {f"OMPI_MCA_btl_{name}_backing_directory": directories[1] for name in ("vader", "sm")}
    try:
        server = Server(given, directories[0], hand_over)
        server.announce(beyond)
    except (OSError, openpmix.Failed) as error:
        given.tell(f"failed {error}")
        return 1
    poll = select.poll()
    poll.register(given.life, 0)
    poll.register(other, 0)
    poll.poll()
    _remove(directories)  # first, because the library may take its time
    server.finish()
    return 0


def _remove(directories: "list[str]") -> None:
    for path in directories:
        shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    """The process that the step runner knows."""
    name_process("nodectl-pmix")
    given = Given()
    directories = []
    for place in _PLACES:
        with contextlib.suppress(OSError):
            directories.append(tempfile.mkdtemp(prefix="nodectl-mpi-", dir=place))
    if not directories:
        given.tell(f"failed no directory in {_PLACES[0]}")
        sys.exit(1)
    try:
        status = _serve_and_lead(given, directories)
    finally:
        _remove(directories)
    sys.exit(status != 0)


def _serve_and_lead(given: Given, directories: "list[str]") -> int:
    """Forks the library's process, and leads to it who may come, until it ends."""
    path = f"{directories[0]}/entrance"
    private = socket.socket(socket.AF_UNIX)
    private.bind(path)
    private.listen(given.tasks + socket.SOMAXCONN)
    private.setblocking(False)
    own, other = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        own.close()
        os._exit(_serve(given, directories, private, other))
    other.close()
    private.close()
    if fds := socket.recv_fds(own, 1, 1)[1]:
        entrance.Entrance(socket.socket(fileno=fds[0]), path).serve(own)
    return os.waitpid(pid, 0)[1]
