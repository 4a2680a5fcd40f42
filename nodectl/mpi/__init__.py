"""The servers of the MPI plugins: processes that run as a step's user, beside its tasks, and end with it.

What a task sends is read here and nowhere else. The step runner, which is root, hears a few words of them
(`nodectl/model/mpi_server.py`).
"""

import os
import sys

from nodectl.model.mpi_server import MpiServer

_CODE = "import sys; sys.path[:0] = {path!r}; from nodectl.mpi.{module} import main; main()"
_PATH = [os.path.dirname(os.path.dirname(os.path.dirname(__file__)))]


def own_server(module: str, *, connected: bool = False, announces: bool = False) -> MpiServer:
    """The server that is a module of this package, in an interpreter of its own."""
    argv = [sys.executable, "-I", "-S", "-c", _CODE.format(path=_PATH, module=module)]
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    return MpiServer(argv, environment, connected=connected, announces=announces)
