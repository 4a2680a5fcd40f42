"""Turns a process of root's into a process of the step's user: visitors, relays, file openers, MPI servers, epilogs.

These processes are no tasks. Each gets what a task has, and nothing of the service's. A task does the same in its
stages (`stages.py`).
"""

import os

from nodectl.kernel import _kernel, pseudo_file
from nodectl.kernel.identity import become_user, own_keyring, sign_in
from nodectl.launch.confine.confinement import Confinement
from nodectl.launch.task import rlimits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.launch.cgroup.tree import Group
    from nodectl.model.step import Step


def become(
    step: "Step", confinement: Confinement | None = None, *, group: "Group | None" = None,
    enter: "Callable[[], bool] | None" = None, signs_in: bool = False,
) -> bool:  # fmt: skip
    """Become the step's user for good, in this cgroup. Raises OSError, CannotConfine.

    `enter` joins the job's container; if that fails, False is returned, and the caller has to end. `signs_in`: the
    process is no child of the step's stepd, which has a place in the audit and a keyring already.
    """
    if signs_in:
        sign_in(step.uid)
        own_keyring()
    if group is not None:
        group.add(0)
    if _kernel.capabilities()[0] & rlimits.CAP_SYS_RESOURCE:
        pseudo_file.write("/proc/self/oom_score_adj", b"0")  # the runner may be spared when memory runs out
    rlimits.set_hard(step.hard_limits)
    os.umask(step.umask)
    if enter is not None and not enter():
        return False
    (confinement or Confinement(step, step.environment)).limit_capabilities()
    become_user(step.identity)
    return True
