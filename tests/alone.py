"""A test in a process of its own, which has one thread and no children: what looks at all children, and at SIGCHLD,
meets neither what other tests have left nor the threads of pytest-xdist, which take signals away.
"""

import functools
import os
import traceback
from collections.abc import Callable
from typing import ParamSpec

_P = ParamSpec("_P")


def alone(test: Callable[_P, None]) -> Callable[_P, None]:
    """Runs the test in a fork; what it raises is in the failure's words."""

    @functools.wraps(test)
    def in_a_fork(*args: _P.args, **how: _P.kwargs) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                test(*args, **how)
                os.write(writer, b"+")
            except BaseException:
                os.write(writer, traceback.format_exc().encode()[-60_000:])
            finally:
                os._exit(0)
        os.close(writer)
        with open(reader, "rb") as file:
            said = file.read()
        os.waitpid(pid, 0)
        assert said == b"+", said.decode(errors="replace")

    return in_a_fork
