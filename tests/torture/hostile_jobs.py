"""Clients of an ordinary user that keep others from being served by what their jobs and steps are."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable

from rootful.raw import REQUEST, call, launch
from torture.foe import Foe

_TERMS = 256  # of a dependency
_NAMES = 200  # of jobs in one call
_MOMENT = 0.3  # seconds


def submit(**options: object) -> bytes:
    """A held batch job."""
    parameters = {"request": {**REQUEST, "argv": ["job"]}, "job": {"hold": True, **options}, "script": "#!/bin/sh\n"}
    return call("org.nodectl.Submit", parameters=parameters)


def names(foe: Foe) -> None:
    """Names of jobs that mean millions of them."""
    jobs = [f"{number}_[0-99999:2,1-99999:2]" for number in range(1, _NAMES + 1)]
    for method in ("Queue", "Cancel", "Hold", "ReleaseJobs"):
        foe.ask(call(f"org.nodectl.{method}", parameters={"jobs": jobs}))


def dependencies(foe: Foe) -> None:
    """Jobs of which each waits for hundreds of tasks of an array, each set apart from the others."""
    array = foe.ask(submit(array=f"0-{_TERMS - 1}")).get("job", 1)
    for task in range(_TERMS):
        foe.ask(call("org.nodectl.UpdateJob", parameters={"job": f"{array}_{task}", "nice": 1 + task}))
    wanted = "afterany" + "".join(f":{array}_{task}" for task in range(_TERMS))
    for _ in range(_TERMS):
        foe.ask(submit(dependency=wanted, hold=False))
    foe.ask(call("org.nodectl.Queue", parameters={}))
    cancel_all(foe)


def counterparts(foe: Foe) -> None:
    """Arrays whose tasks wait for those of other arrays that have their numbers, and singletons of one name."""
    tasks = "0-1000"
    others = [foe.ask(submit(array=tasks)).get("job", 1) for _ in range(8)]
    wanted = "aftercorr" + "".join(f":{other}" for other in others)
    for _ in range(20):
        foe.ask(submit(array=tasks, dependency=wanted, hold=False))
        foe.ask(submit(dependency="singleton", hold=False))
    for other in others:
        foe.ask(call("org.nodectl.Cancel", parameters={"jobs": [f"{other}_[0-1000:7]"]}))
        foe.ask(call("org.nodectl.Queue", parameters={"points": True}))
    cancel_all(foe)


def arrays(foe: Foe) -> None:
    """Arrays whose lists of tasks are long."""
    tasks = ",".join(str(task) for task in range(0, 1001, 2))
    for _ in range(100):
        foe.ask(submit(array=tasks))
    foe.ask(call("org.nodectl.Queue", parameters={}))
    cancel_all(foe)


def allocations(foe: Foe) -> None:
    """Jobs that wait, each with a long list of masks."""
    request = {**REQUEST, "layout": {"cpu_bind": "mask_cpu:" + "0x1," * 20_000 + "0x1"}}
    for _ in range(20):
        parameters = {"request": request, "job": {"hold": True}, "held_by": "alloc"}
        foe.ask(call("org.nodectl.Allocate", parameters=parameters))
    cancel_all(foe)


def cancel_all(foe: Foe) -> None:
    foe.ask(call("org.nodectl.Cancel", parameters={}))


def traces(foe: Foe) -> None:
    """Steps of which much is written down."""
    foe.ask(launch(ntasks=64, layout={"overcommit": "1"}, environment={f"V{n}": "x" * 1000 for n in range(50)}))


def epilogs(foe: Foe) -> None:
    """Steps whose tasks have epilogs that never end. They are killed soon, so that others get their CPUs."""
    _killed_soon(foe, launch(task_epilog="/usr/bin/yes", ntasks=2, layout={"overcommit": "1"}))


def outputs(foe: Foe) -> None:
    """Steps whose output is a file that cannot be closed."""
    if not foe.unanswered:
        time.sleep(1)
        return
    _killed_soon(foe, launch(stdout=foe.unanswered, stderr=foe.unanswered))


def visits(foe: Foe) -> None:
    """Programs among the processes of a step, with streams that cannot be closed."""
    step = foe.ask(launch(argv=["sleep", "2"]))
    if not step or foe.odd.unanswered < 0:
        time.sleep(1)
        return
    for _ in range(10):
        with foe.connect() as sock:
            parameters = {"job": step["job"], "step": step["step"], "argv": ["true"], "environment": {}}
            message = call("org.nodectl.Enter", parameters=parameters)
            socket.send_fds(sock, [message], [foe.odd.unanswered] * 4)
            sock.recv(65536)
    _kill(foe, step)


def _killed_soon(foe: Foe, message: bytes) -> None:
    step = foe.ask(message)
    time.sleep(_MOMENT)
    if step:
        _kill(foe, step)


def _kill(foe: Foe, step: dict[str, object]) -> None:
    parameters = {"job": step["job"], "step": step["step"], "signal": int(signal.SIGKILL)}
    foe.ask(call("org.nodectl.Signal", parameters=parameters))


KINDS: dict[str, Callable[[Foe], None]] = {
    kind.__name__: kind
    for kind in (names, dependencies, counterparts, arrays, allocations, traces, epilogs, outputs, visits)
}  # fmt: skip
