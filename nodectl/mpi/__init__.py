"""A feature, the servers of the MPI plugins: processes run as the step's user, beside the tasks, until the step ends.

Only these servers read data from tasks. The step runner, which is root, reads a few words from a server
(`nodectl/model/mpi_server.py`).
"""

import os
import sys

from nodectl.model.mpi_server import MpiServer

_CODE = "import sys; sys.path[:0] = {path!r}; from nodectl.mpi.{module} import main; main()"
_PATH = [os.path.dirname(os.path.dirname(os.path.dirname(__file__)))]


def own_server(module: str, *, connected: bool = False, announces: bool = False) -> MpiServer:
    """Return the server implemented by a module of this package, for a separate interpreter."""
    argv = [sys.executable, "-I", "-S", "-c", _CODE.format(path=_PATH, module=module)]
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    return MpiServer(argv, environment, connected=connected, announces=announces)
