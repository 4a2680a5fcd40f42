"""What a server is given in its environment, and how it speaks to the step runner: `nodectl/model/mpi_server.py`."""

import os


class Given:
    """The environment of a server."""

    def __init__(self) -> None:
        self.tasks = int(os.environ["NODECTL_MPI_TASKS"])
        self.job = os.environ["NODECTL_MPI_JOB"]
        self.life = int(os.environ["NODECTL_MPI_LIFE"])
        self.sockets = [int(word) for word in os.environ.get("NODECTL_MPI_SOCKETS", "").split(",") if word]
        self._words = int(os.environ["NODECTL_MPI_WORDS"])

    def tell(self, word: str) -> None:
        """Tells the step runner. Where it is gone, the end of `life` says so."""
        try:
            os.write(self._words, word.encode("utf-8", "surrogateescape") + b"\n")
        except OSError:
            pass


def name_process(name: str) -> None:
    """Gives this process a name, as lists of processes show it."""
    try:
        with open("/proc/self/comm", "wb") as file:
            file.write(name.encode("ascii"))
    except OSError:
        pass
