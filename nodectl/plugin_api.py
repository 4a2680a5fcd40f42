"""What a plugin file imports from nodectl.

A plugin is one Python file. It names itself with three module attributes and does its work in
functions that carry the names of the plugin documents:

    \"\"\"Nice every task of a step.\"\"\"

    import os

    from nodectl.plugin_api import SLURM_SUCCESS, PluginError

    plugin_type = "task/nice"
    plugin_name = "task niceness"
    plugin_version = (22, 5, 8)

    def task_p_pre_launch(step):
        try:
            os.nice(5)
        except OSError as error:
            raise PluginError(error.errno, "cannot be nice") from error
        return SLURM_SUCCESS

It is found as task/nice.py in a directory of the key `plugin_dir`; its body may import what lies beside it
(`from . import helper`). plugin_version is three numbers, or one as in slurm.h (0x160508), for job_container plugins
also 101, the version of their interface; task and select plugins may leave it out. A function that is left out does
nothing. A hook of the future is told in the log and never called; a name that is nearly a known hook is refused when
the file is loaded.

`init()` and `fini()` may be given and take no parameters. Two processes call them when they have loaded the plugin and
before they end: the daemon, and the one from which step runners are forked. Both count as hooks: they have
`spank_hook_timeout`, and a failure keeps the service from starting. Work that takes longer belongs in a thread that
init() makes and fini() ends, which only the daemon may have (`may_have_threads`).

A function fails by raising `PluginError`, or by returning SLURM_ERROR, perhaps after `set_errno`. A plugin speaks to
the step's user with `nodectl.messages`; `print` writes into a stream that is the user's, or nowhere. Where no user is,
as in init() and in what is done to containers, the service's log has it.

What a function keeps in a variable another may not find: they run in several processes.

    daemon                 task_p_slurmd_*; select_p_*, all of them, which keep what they know in its memory
    step runner            task_p_pre_setuid, _post_term (as the job's owner), _post_step; proctrack_p_*;
                           container_p_create (of the job's first step), container_p_add_cont (of every step)
    each task, its child   task_p_pre_launch_priv, _pre_launch (as the user); container_p_add_pid
    a process for each     container_p_delete, container_p_restore; container_p_add_cont and _add_pid of `nodectl enter`
    the forkserver         container_p_reconfig: what it changes, step runners and all the others find from then on

A task in which a function of yours is called is a fork of the step runner, which costs three times as much as one in
which nothing is. What `nodectl.kernel.operations` has (CPUs, memory policy, limits) a task plugin can have done without
a call: by `task_p_pre_launch_priv_plan(step, task)` and `task_p_pre_launch_plan(step, task)` in the place of the
functions without `_plan`. The step runner calls them for each task, and each returns a list of operations. A container
plugin does the same with `container_p_add_pid_plan(step, task)`, beside container_p_add_pid, which is still called for
processes that are no tasks; it returns None where a task has to call that, too.

So what container_p_create makes has to be found by container_p_delete in the file system, by the job's number;
`nodectl.launch.container.job` tells of the job's step. A daemon or such a process that dies has its successor call
container_p_delete and task_p_slurmd_release_resources again.
"""

from __future__ import annotations

import os

API_VERSION = (22, 5, 8)
"""Major, minor and micro number a plugin's `plugin_version` is compared with. A plugin writes the
numbers out: taking them from here would make the comparison say nothing."""

SLURM_VERSION_NUMBER = 0x160508
"""The same as one number, as slurm.h has it: `plugin_version = 0x160508` is understood, too. A plugin that takes it
from here loads in every nodectl."""

SLURM_SUCCESS = 0
"""What a function returns when all went well."""

SLURM_ERROR = -1
"""What the host reports for a function that raised `PluginError`; a function may return it
itself."""


class _Errno:
    code = 0
    message = ""


def set_errno(code: int, message: str = "") -> None:
    """Set the reason for returning SLURM_ERROR from the running function, as errno does for a plugin in C.

    `code` and `message` are as in `PluginError`, and the host uses them in the same way. Each call of a plugin begins
    without a reason.
    """
    _check_code(code)
    _Errno.code, _Errno.message = code, message


def take_errno() -> tuple[int, str]:
    """Return and clear the reason set by the last call, (0, "") for none. For the host."""
    if _Errno.code == SLURM_SUCCESS:
        return SLURM_SUCCESS, ""  # and nothing is written to, which would cost each fork pages of its own
    found = _Errno.code, _Errno.message
    _Errno.code, _Errno.message = SLURM_SUCCESS, ""
    return found


def _check_code(code: object) -> None:
    if type(code) is not int or code == SLURM_SUCCESS:
        raise TypeError(f"the code of a failure is an errno or a Slurm number, not {code!r}")


class PluginError(Exception):
    """The failure of a plugin's function, with a reason.

    `code` is an errno (`errno.ENOMEM`) or a Slurm error number (3001); the host turns it into SLURM_ERROR with this
    errno. `message` is one line for the user, in lower case without a full stop; without a message the user sees the
    system's words for `code`.
    """

    def __init__(self, code: int, message: str = "") -> None:
        _check_code(code)
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message or os.strerror(self.code)


class _Host:
    threads = False


def may_have_threads() -> bool:
    """Return True in the daemon, False in the process from which step runners are forked and in all descendants.

    A thread that an init() leaves in that process refuses the plugin. If init() starts a thread, fini() must end it.
    """
    return _Host.threads


def allow_threads(allowed: bool) -> None:  # the host's, once
    """Set the answer of `may_have_threads`. For the host."""
    _Host.threads = allowed
