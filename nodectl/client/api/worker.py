"""A worker of a StepExecutor: the program of a confined step, which calls functions as it is told.

It runs as the user, in the interpreter that the executor runs in. Its standard input is one end of a socket pair whose
other end the executor made and kept: only these two can say anything there. What a function prints goes where the
executor's own output goes, what it reads from standard input is empty.
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
    """An exception of a function that could not be sent as it was; str() has its traceback."""


def main() -> None:
    """Serves until the executor closes its end."""
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
    """Calls what the order says; (True, result) or (False, exception), pickled."""
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
    """cloudpickle's where that is installed, which also takes lambdas and functions of the main program."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    return dumps


def preparation() -> bytes:
    """What makes a worker like this process: its path, its directory, and the main program unless functions of that
    come by value.
    """
    from multiprocessing.spawn import get_preparation_data

    data: Mapping[str, Any] = get_preparation_data("StepExecutor worker")
    left_out = {"authkey", "log_to_stderr", "orig_dir"}
    if pickler() is not pickle.dumps:
        left_out |= {"init_main_from_name", "init_main_from_path"}
    return pickle.dumps({name: value for name, value in data.items() if name not in left_out})


if __name__ == "__main__":
    main()
