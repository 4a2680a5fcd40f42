"""A program of PMIx in each task of a step, by the library's own client: no MPI, which would have ways to fail of its
own.

usage: pmix.py [ask|hang|exit|abort|some|connect|lone] [TASK]. With `ask` fences collect nothing, so that each task asks
for what it wants of the others; with `lone` it wants what another one never stores. What else that task does in place
of the second fence. It prints a line where it hangs.
"""

import ctypes
import os
import signal
import sys

from nodectl.mpi.openpmix import STRING, SUCCESS, UINT32, WILDCARD, Proc, _Value, infos

GLOBAL = 3  # PMIX_GLOBAL
Found = ctypes.POINTER(_Value)


class Client:
    """The library, and who this task is."""

    def __init__(self, *, collects: bool) -> None:
        self._calls = ctypes.CDLL("libpmix.so.2")
        self.own = Proc()
        self.call("PMIx_Init", ctypes.byref(self.own), None, 0)
        self.rank = self.own.rank
        self.all = Proc(self.own.nspace, WILDCARD)
        self._how = infos({"pmix.collect": True}) if collects else (None, 0)

    def status(self, name: str, *arguments: object) -> int:
        found: int = getattr(self._calls, name)(*arguments)
        return found

    def call(self, name: str, *arguments: object) -> None:
        assert (status := self.status(name, *arguments)) == SUCCESS, (name, status)

    def put(self, key: str, text: str) -> None:
        value = _Value(STRING)
        value.data.string = text.encode()
        self.call("PMIx_Put", GLOBAL, key.encode(), ctypes.byref(value))

    def fence(self) -> None:
        self.call("PMIx_Commit")
        self.call("PMIx_Fence", ctypes.byref(self.all), ctypes.c_size_t(1), *self._how)

    def get(self, rank: int, key: str) -> "str | int":
        found = Found()
        proc = Proc(self.own.nspace, rank)
        self.call("PMIx_Get", ctypes.byref(proc), key.encode(), None, 0, ctypes.byref(found))
        value = found.contents
        return int(value.data.uint32) if value.type == UINT32 else value.data.string.decode()


def main(how: str = "", at: str = "-1") -> None:
    client = Client(collects=how != "ask")
    if how == "lone":
        other = Proc(client.own.nspace, client.rank ^ 4)
        status = client.status("PMIx_Get", ctypes.byref(other), b"card", None, 0, ctypes.byref(Found()))
        print(f"{client.rank}: {status}", flush=True)
        client.call("PMIx_Finalize", None, 0)
        return
    rank, size = client.rank, int(client.get(WILDCARD, "pmix.job.size"))
    places = "/".join(f"{client.get(other, 'pmix.hname')}" for other in range(size))
    peers = client.get(WILDCARD, "pmix.lpeers")
    for turn in range(3):
        client.put(f"card-{turn}", f"{'x' * 500}#{rank}")
        client.fence()
        cards = [client.get(other, f"card-{turn}") for other in range(size)]
        assert cards == [f"{'x' * 500}#{other}" for other in range(size)], cards
        if turn == 0 and rank == int(at):
            misbehave(client, how)
    client.fence()  # until then somebody may still ask
    print(f"{rank} of {size}: {places}, {peers}", flush=True)
    client.call("PMIx_Finalize", None, 0)


def misbehave(client: Client, how: str) -> None:
    """Returns where the others do not wait in vain."""
    some = (Proc * 2)(client.own, Proc(client.own.nspace, client.rank ^ 2))
    if how == "some":
        print(f"some: {client.status('PMIx_Fence', some, ctypes.c_size_t(2), None, 0)}", flush=True)
        return
    if how == "connect":
        print(f"connect: {client.status('PMIx_Connect', some, ctypes.c_size_t(2), None, 0)}", flush=True)
        return
    if how == "abort":
        client.status("PMIx_Abort", 7, b"", None, 0)
    elif how == "exit":
        os._exit(3)
    print(f"hangs {os.getpid()}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
