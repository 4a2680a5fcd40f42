"""A program of PMI-1 in each task of a step, over the descriptor that it was given: no MPI library, which would have
ways to fail of its own.

usage: pmi.py [hang|exit|abort|leave|malformed] [TASK]: what that task does in place of the second barrier. It prints a
line where it hangs.
"""

import os
import signal
import socket
import sys


class Conversation:
    """That with the server."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=int(os.environ["PMI_FD"]))
        self._lines = self._socket.makefile("rb")

    def say(self, line: str) -> None:
        self._socket.sendall(line.encode() + b"\n")

    def ask(self, line: str) -> dict[str, str]:
        self.say(line)
        return dict(word.split("=", 1) for word in self._lines.readline().decode().split())


def main(how: str = "", at: str = "-1") -> None:
    rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
    server = Conversation()
    server.ask("cmd=init pmi_version=1 pmi_subversion=1")
    mapping = server.ask("cmd=get kvsname=k key=PMI_process_mapping")["value"]
    universe = server.ask("cmd=get_universe_size")["size"]
    for turn in range(3):
        server.ask(f"cmd=put kvsname=k key=card-{turn}-{rank} value={'x' * 500}#{rank}")
        server.ask("cmd=barrier_in")
        cards = [server.ask(f"cmd=get kvsname=k key=card-{turn}-{other}")["value"] for other in range(size)]
        assert cards == [f"{'x' * 500}#{other}" for other in range(size)], cards
        if turn == 0 and how and rank == int(at):
            misbehave(server, how)
    published = server.ask("cmd=publish_name service=here port=tag")["rc"]
    print(f"{rank} of {size} ({universe}) {mapping} {published}", flush=True)
    server.ask("cmd=finalize")


def misbehave(server: Conversation, how: str) -> None:
    """Does not return."""
    if how == "abort":
        server.say("cmd=abort exitcode=7")
    elif how == "malformed":
        server.say("this is no PMI")
    elif how == "leave":
        server.ask("cmd=finalize")
        sys.exit(0)
    elif how == "exit":
        os._exit(3)
    print(f"hangs {os.getpid()}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
