"""A worker of a StepExecutor: the program of a confined step, which calls the functions sent by the executor.

The worker runs as the user, in the interpreter that the executor runs in. Its standard input is one end of a socket
pair; the executor made and kept the other end. Only these two processes can write there. A function's output goes where
the executor's own output goes; a function's standard input is empty.
"""

import os
import pickle
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.spawn import prepare
from typing import Any

READY = b"ready"


class RemoteError(Exception):
    """An exception of a function which could not be pickled; str() has the traceback."""


def main() -> None:
    """Serve until the executor closes the socket pair."""
    told = Connection(os.dup(0))
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    try:
        prepare(pickle.loads(told.recv_bytes()))  # noqa: S301  # of the process that started this one
        told.send_bytes(READY)
        while True:
            told.send_bytes(answer(told.recv_bytes()))
    except (EOFError, ConnectionError):
        return


def answer(order: bytes) -> bytes:
    """Call the function in the order; return (True, result) or (False, exception), pickled."""
    dumps = pickler()
    try:
        function, args, kwargs = pickle.loads(order)  # noqa: S301  # as above
        return dumps((True, function(*args, **kwargs)))
    except BaseException as error:  # SystemExit is one of a function's, too
        told = "".join(traceback.format_exception(error)).rstrip()
        try:
            error.add_note(f"\nIn the worker:\n{told}")
            sent = dumps((False, error))
            pickle.loads(sent)  # noqa: S301  # some can be pickled, and not made again
        except Exception:
            return pickle.dumps((False, RemoteError(told)))
        return sent


def pickler() -> Callable[[Any], bytes]:
    """Return cloudpickle's dumps where installed, else pickle's. cloudpickle also takes lambdas and functions of the
    main program.
    """
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    return dumps


def preparation() -> bytes:
    """Return the data with which a worker takes on this process's path, directory and main program, pickled.

    The main program is left out where functions of the main program are pickled by value.
    """
    from multiprocessing.spawn import get_preparation_data

    data: Mapping[str, Any] = get_preparation_data("StepExecutor worker")
    left_out = {"authkey", "log_to_stderr", "orig_dir"}
    if pickler() is not pickle.dumps:
        left_out |= {"init_main_from_name", "init_main_from_path"}
    return pickle.dumps({name: value for name, value in data.items() if name not in left_out})


if __name__ == "__main__":
    main()
