"""A server's environment, and the server's reports to the step runner: see `nodectl/model/mpi_server.py`."""

import os

from nodectl.model.part import numbers_of


class Given:
    """The environment of a server.

    `tasks`: the number of tasks here, with the numbers `numbers`; `size`: the number of tasks of all `nodes` nodes.
    This node is `node`, with the name `node_name`. `others`: the socket of the agent, -1 for a step on one node.
    """

    def __init__(self) -> None:
        self.tasks = int(os.environ["NODECTL_MPI_TASKS"])
        self.size = int(os.environ.get("NODECTL_MPI_SIZE", self.tasks))
        self.listed = os.environ.get("NODECTL_MPI_NUMBERS", f"0-{self.tasks - 1}")
        self.numbers = numbers_of(self.listed, self.tasks, self.size)
        self.node = int(os.environ.get("NODECTL_MPI_NODE", "0"))
        self.nodes = int(os.environ.get("NODECTL_MPI_NODES", "1"))
        self.node_name = os.environ.get("NODECTL_MPI_NODE_NAME", "") or os.uname().nodename
        self.others = int(os.environ.get("NODECTL_MPI_OTHERS", "-1"))
        self.job = os.environ["NODECTL_MPI_JOB"]
        self.life = int(os.environ["NODECTL_MPI_LIFE"])
        self.sockets = [int(word) for word in os.environ.get("NODECTL_MPI_SOCKETS", "").split(",") if word]
        self._words = int(os.environ["NODECTL_MPI_WORDS"])

    def tell(self, word: str) -> None:
        """Report a word to the step runner. A lost step runner is noticed by the end of `life`."""
        try:
            os.write(self._words, word.encode("utf-8", "surrogateescape") + b"\n")
        except OSError:
            pass


def name_process(name: str) -> None:
    """Set the name of this process, for lists of processes."""
    try:
        with open("/proc/self/comm", "wb") as file:
            file.write(name.encode("ascii"))
    except OSError:
        pass
