"""View: a connection to the process copying a running step's streams, for `nodectl attach`. For the user and root only.

The rest of the admin group may not: a caller who sees and types the input of a terminal acts as its user. For the same
reason a confined step attaches to no step with more rights, just as it enters none (`enter.py`).
"""

import os
import socket
from collections.abc import Mapping

from nodectl.launch.streams import filename
from nodectl.model.step import Step
from nodectl.model.step_number import EXTERN
from nodectl.model.wire.dispatch import Call, Refused
from nodectl.service.daemon.admission.confinement import ConfinementLevels
from nodectl.service.daemon.jobs.registry import Registry


class View:
    """The View method of the node."""

    def __init__(self, registry: Registry, levels: ConfinementLevels) -> None:
        self._registry = registry
        self._levels = levels

    def view(self, call: Call) -> Mapping[str, object]:
        """Connect to the copying process and hand the connection over to the caller.

        The daemon receives nothing made by the step's user, so it never has to wait. The socket is there before
        others know of the step: where the step has not begun, its viewers wait there.
        """
        live = self._registry.find_running(call)
        step = live.step
        if call.peer.uid not in (0, step.uid):
            raise Refused("NotPermitted", f"step {step} belongs to {step.user_name}")
        self._levels.check_enter(live, call.peer)
        if not step.has_viewers:
            raise Refused("WrongState", _why_not(step))
        answer: dict[str, object] = {"ntasks": step.total_tasks}
        if step.pty:
            answer["terminal"] = step.pty[0]
        way, nowhere = socket.socketpair()  # for descriptors that may have come with the call
        nowhere.close()
        with way:
            view = _connect(f"{live.files.stem}.view", step)
            call.hand_over(answer, (way.detach(), view))
        return answer


def _connect(path: str, step: Step) -> int:
    """Connect to the view socket without waiting, because the user's process could let us wait. Raises Refused."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.setblocking(False)
    try:
        sock.connect(path)
    except BlockingIOError:
        sock.close()
        raise Refused("WrongState", f"step {step}: what shows its streams takes no further viewer now") from None
    except OSError:
        sock.close()
        raise Refused("WrongState", f"step {step}: its streams have ended, and cannot be seen any more") from None
    os.set_blocking(sock.fileno(), True)
    return sock.detach()


def _why_not(step: Step) -> str:
    if files := set(filename.files_of(step).values()):
        name = step.job_id if step.step_id == step.first_step else step
        return f"step {step}: its output is in {' and '.join(sorted(files))}; `nodectl log -f {name}` follows it"
    if step.step_id == EXTERN:
        return (
            f"job {step.job_id} is an allocation, whose command has the terminal of `nodectl alloc`; "
            f"`nodectl run --jobid={step.job_id} --pty bash` opens a shell in it"
        )
    return (
        f"step {step}: its streams are its client's own, and pass through nothing that could show them; "
        "--pty, -l or -u of `nodectl run` let others attach"
    )
