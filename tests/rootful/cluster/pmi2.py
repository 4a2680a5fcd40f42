"""A program of PMI-2 in each task of a step, over the descriptor that it was given: no MPI library, which would have
ways to fail of its own.

usage: pmi2.py [hang|exit|abort|leave|malformed] [TASK]: what that task does in place of the second fence.
"""

import os
import signal
import socket
import sys


class Conversation:
    """That with the server."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=int(os.environ["PMI_FD"]))
        self._stream = self._socket.makefile("rb")
        self._socket.sendall(b"cmd=init pmi_version=2 pmi_subversion=0\n")
        assert b" rc=0" in self._stream.readline()

    def say(self, name: str, /, **fields: object) -> None:
        body = "".join(f"{key}={str(value).replace(';', ';;')};" for key, value in {"cmd": name, **fields}.items())
        self._socket.sendall(f"{len(body):6d}{body}".encode())

    def ask(self, name: str, /, **fields: object) -> dict[str, str]:
        self.say(name, **fields)
        body = self._stream.read(int(self._stream.read(6))).decode().replace(";;", "\0")
        words = (word.partition("=") for word in body.split(";") if word)
        found = {key: value.replace("\0", ";") for key, _, value in words}
        assert found["cmd"] == f"{name}-response", found
        return found


def main(how: str = "", at: str = "-1") -> None:
    rank = int(os.environ["PMI_RANK"])
    server = Conversation()
    size = int(server.ask("fullinit", pmijobid=os.environ["PMI_JOBID"], pmirank=rank, threaded="FALSE")["size"])
    mapping = server.ask("info-getjobattr", key="PMI_process_mapping")["value"]
    universe = server.ask("info-getjobattr", key="universeSize")["value"]
    server.ask("info-putnodeattr", key=f"here-{rank}", value="yes")
    neighbours = [one for one in range(size) if server.ask("info-getnodeattr", key=f"here-{one}")["found"] == "TRUE"]
    assert rank in neighbours
    for turn in range(3):
        server.ask("kvs-put", key=f"card-{turn}-{rank}", value=f"{'x' * 500};#{rank}")
        server.ask("kvs-fence")
        cards = [server.ask("kvs-get", key=f"card-{turn}-{other}")["value"] for other in range(size)]
        assert cards == [f"{'x' * 500};#{other}" for other in range(size)], cards
        if turn == 0 and how and rank == int(at):
            misbehave(server, how)
    published = -int(server.ask("name-publish", name="here", port="tag")["rc"])
    print(f"{rank} of {size} ({universe}) {mapping} {published}", flush=True)
    server.ask("finalize")


def misbehave(server: Conversation, how: str) -> None:
    """Does not return."""
    if how == "abort":
        server.say("abort", isworld="TRUE", msg="")
    elif how == "malformed":
        server.say("", no="command")
    elif how == "leave":
        server.ask("finalize")
        sys.exit(0)
    elif how == "exit":
        os._exit(3)
    print(f"hangs {os.getpid()}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
