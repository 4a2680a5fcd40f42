"""The callbacks of OpenPMIx's library for the tasks of this node: places of tasks, fences, data stored on remote nodes.

The library calls from a thread of its own. The thread of the process's loop handles all that concerns other nodes: it
alone speaks with them, and answers the library later.
"""

import ctypes
import os

from nodectl.mpi import entrance, openpmix, pmix_places
from nodectl.mpi.openpmix import DONE, NOT_FOUND, NOT_SUPPORTED, SUCCESS, WILDCARD, Library, Module, Proc
from nodectl.mpi.questions import Questions
from nodectl.mpi.words import Given

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from nodectl.mpi.others import Others
    from nodectl.mpi.pmix_places import Places

    Procs = ctypes._Pointer[Proc]
    Later = Callable[[Callable[[], None]], None]

_STRANGER = -1  # in place of the rank of a task of another step


class Host:
    """The library at work. `later` runs a function in the loop."""

    def __init__(self, given: Given, directory: str, listens: "Callable[[], None]", later: "Later") -> None:
        """Start the library; call `listens` when the library listens. Raises openpmix.Failed, and exceptions of
        `listens`.
        """
        self._given = given
        self._directory = directory
        self._later = later
        self._places: Places | None = None
        self._name = b""
        self._others: Others | None = None
        self._questions: Questions | None = None
        self._gone: set[int] = set()
        self._early: list[Callable[[], None]] = []  # calls to make when the library knows the tasks
        self._lent: dict[int, object] = {}  # objects that the library still reads or will give back, by our number
        self._number = 0
        self._told: set[str] = set()
        self._release = openpmix.RELEASE(self._take_back)
        self._hear_request = openpmix.OF_REQUEST(self._requested)
        self._library = Library()
        self._module = self._make_module()
        made = openpmix.infos(
            {"pmix.srvr.tmpdir": directory, "pmix.sys.tmpdir": directory, "pmix.hname": pmix_places.name_of(given)}
        )
        with entrance.cutting_off_strangers():
            self._library.call("PMIx_server_init", ctypes.byref(self._module), *made)
        listens()

    def _make_module(self) -> Module:
        """Return the table of callbacks."""
        module = Module()
        module.client_connected = openpmix.CLIENT(self._connected)
        module.client_finalized = openpmix.CLIENT(self._finalized)
        module.abort = openpmix.ABORT(self._abort)
        module.fence_nb = openpmix.FENCE(self._fence)
        module.direct_modex = openpmix.DIRECT_MODEX(self._find)
        module.spawn = openpmix.SPAWN(self._spawn)
        module.connect = module.disconnect = openpmix.CONNECT(self._connect)
        module.register_events = openpmix.REGISTER(lambda *_: DONE)
        module.deregister_events = openpmix.DEREGISTER(lambda *_: DONE)
        return module

    # The beginning and the end.

    def meet(self, others: "Others | None", beyond: "dict[str, str]") -> None:
        """Exchange the places of tasks with remote nodes, then let the tasks here begin. Raises openpmix.Failed.

        `beyond`: additional variables of the tasks' environment.
        """
        told = pmix_places.here(self._given)
        if others is None:
            self._begin(pmix_places.of_all(self._given, told), beyond)
            return
        self._others = others
        self._questions = Questions(others, self._given.numbers, self._look_up)
        others.read_letters(self._questions)
        others.gather(told, lambda said: self._begin(pmix_places.of_all(self._given, said), beyond))

    def _begin(self, places: "Places", beyond: "dict[str, str]") -> None:
        """Register the tasks with the library and report the tasks' environment. Raises openpmix.Failed."""
        self._name = places.namespace.encode("ascii")
        self._register(places)
        self._places = places
        early, self._early = self._early, []
        for one in early:
            one()
        words = [f"{name}={value}" for name, value in beyond.items()]
        for word in [*self._library.variables(Proc(self._name, self._given.numbers[0])), *words]:
            if not word.startswith("PMIX_RANK=") and "\n" not in word:
                self._given.tell(f"env {word}")
        self._given.tell("ready")

    def _register(self, places: "Places") -> None:
        here, size = self._given.numbers, places.size
        peers = [",".join(map(str, tasks)) for tasks in places.tasks]
        own = f"{self._directory}/job"
        os.mkdir(own, 0o700)
        made = openpmix.infos(
            {
                "pmix.univ.size": size,
                "pmix.job.size": size,
                "pmix.max.size": size,
                "pmix.local.size": len(here),
                "pmix.node.size": len(here),
                "pmix.num.slots": size,
                "pmix.num.nodes": len(places.names),
                "pmix.nodeid": self._given.node,
                "pmix.job.napps": 1,
                "pmix.appnum": 0,
                "pmix.lldr": here[0],
                "pmix.aldr": 0,
                "pmix.lpeers": peers[self._given.node],
                "pmix.nmap": self._library.folded("PMIx_generate_regex", ",".join(places.names)),
                "pmix.pmap": self._library.folded("PMIx_generate_ppn", ";".join(peers)),
                "pmix.jobid": places.namespace,
                "pmix.spawned": False,
                "pmix.tmpdir": self._directory,
                "pmix.nsdir": own,
            }
        )
        self._library.call("PMIx_server_register_nspace", self._name, len(here), *made, None, None)
        for rank in here:
            proc = Proc(self._name, rank)
            self._library.call(
                "PMIx_server_register_client", ctypes.byref(proc), os.getuid(), os.getgid(), None, None, None
            )

    def lose_node(self, node: int) -> None:
        """Record the loss of a remote node's server, and with the server the loss of the node's tasks."""
        self._gone.add(node)
        if self._questions is not None:
            self._questions.lose_node(node)
        self._look()

    def part(self) -> None:
        """Forget the remote servers, now out of reach: the step ends."""
        self._others = self._questions = None

    def _tell_once(self, word: str) -> None:
        """Report a word to the step runner, once. A program may cause the same word any number of times."""
        if word not in self._told:
            self._told.add(word)
            self._given.tell(word)

    def _look(self) -> None:
        """Report tasks here that wait in vain for the tasks of a lost node."""
        if self._others is None or not self._gone:
            return
        if self._places is None:
            self._tell_once("failed the MPI server of another node has gone")
        elif self._others.is_gathering:
            self._tell_once(f"deserted {min(self._gone)}")

    # Called by the library, in its thread.

    def _connected(self, proc: "Procs", *_: object) -> int:
        self._given.tell(f"within {proc.contents.rank}")
        return DONE

    def _finalized(self, proc: "Procs", *_: object) -> int:
        self._given.tell(f"without {proc.contents.rank}")
        return DONE

    def _abort(self, proc: "Procs", _: object, status: int, *__: object) -> int:
        self._given.tell(f"abort {proc.contents.rank} {status}")
        return DONE

    def _spawn(self, proc: "Procs", *_: object) -> int:
        self._tell_once(f"spawn {proc.contents.rank}")
        return NOT_SUPPORTED

    def _connect(self, procs: "Procs", count: int, *_: object) -> int:
        return DONE if self._given.nodes == 1 else self._refuse(procs, count)

    def _refuse(self, procs: "Procs", count: int) -> int:
        """Refuse a call unsupported in a step over several nodes."""
        here = self._given.numbers
        task = next((procs[i].rank for i in range(count) if procs[i].rank in here), here[0])
        self._tell_once(f"unserved {task}")
        return NOT_SUPPORTED

    def _fence(
        self, procs: "Procs", count: int, _: object, __: int, data: int, size: int, tell: "Callable[..., None]",
        caller: int,
    ) -> int:  # fmt: skip
        ranks = {procs[i].rank if procs[i].nspace == self._name else _STRANGER for i in range(count)}
        if self._given.nodes == 1 or ranks.issubset(self._given.numbers):
            tell(SUCCESS, data, size, caller, None, None)  # the data of the local tasks is all data
            return SUCCESS
        if _STRANGER in ranks or not (WILDCARD in ranks or ranks.issuperset(range(self._given.size))):
            return self._refuse(procs, count)
        said = ctypes.string_at(data, size) if size else b""
        self._later(lambda: self._gather(said, lambda whole: self._give(tell, caller, whole)))
        return SUCCESS

    def _find(self, proc: "Procs", _: object, __: int, tell: "Callable[..., None]", caller: int) -> int:
        """Ask the server of a remote node for a task's stored data."""
        rank = proc.contents.rank
        node = self._places.node_of(rank) if self._places and proc.contents.nspace == self._name else None
        if node is None or node == self._given.node:
            return NOT_FOUND
        self._later(lambda: self._ask(rank, node, lambda data: self._give(tell, caller, data)))
        return SUCCESS

    def _requested(self, status: int, data: int, size: int, number: int) -> None:
        """Pass on the stored data of a task here, on request of a remote node."""
        found = ctypes.string_at(data, size) if status == SUCCESS and size else None
        then: Any = self._lent.pop(number)
        self._later(lambda: then(found))

    def _take_back(self, number: int) -> None:
        del self._lent[number]

    # In the loop.

    def _lend(self, one: object) -> int:
        self._number += 1
        self._lent[self._number] = one
        return self._number

    def _give(self, tell: "Callable[..., None]", caller: int, data: "bytes | None") -> None:
        """Answer the library, which reads the bytes later."""
        if data is None:
            tell(NOT_FOUND, None, 0, caller, None, None)
            return
        place = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
        tell(SUCCESS, place, len(data), caller, self._release, self._lend(data))

    def _gather(self, data: bytes, then: "Callable[[bytes], None]") -> None:
        """Exchange data with all nodes. Raises TooMuch."""
        if self._others is not None:
            self._others.gather(data, then)
            self._look()

    def _ask(self, rank: int, node: int, then: "Callable[[bytes | None], None]") -> None:
        if self._questions is not None:
            self._questions.ask(rank, node, then)

    def _look_up(self, rank: int, then: "Callable[[bytes | None], None]") -> None:
        """Request the stored data of a task here, as soon as the task has stored any."""
        if self._places is None:
            self._early.append(lambda: self._look_up(rank, then))
            return
        proc = Proc(self._name, rank)
        number = self._lend(then)
        told = self._hear_request, ctypes.c_void_p(number)
        try:
            self._library.call("PMIx_server_dmodex_request", ctypes.byref(proc), *told)
        except openpmix.Failed:
            del self._lent[number]
            then(None)
