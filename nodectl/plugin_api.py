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

It is found as task/nice.py in a directory of the key `plugin_dir`. `init()` and `fini()` may be given
and take no parameters: the daemon and the process from which step runners are forked call them when they have
loaded the plugin, and before they end. A function that is left out does nothing. A name that looks like a hook and is
none is refused when the file is loaded. A plugin speaks to the step's user with `nodectl.messages`:
`print` writes into a stream that is the user's, or nowhere.
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
    """Says why the function that is running is about to return SLURM_ERROR: what errno is to a plugin in C.

    `code` and `message` are as in `PluginError`, and so is what the host makes of them. Each call of a plugin begins
    without any.
    """
    _check_code(code)
    _Errno.code, _Errno.message = code, message


def take_errno() -> tuple[int, str]:
    """The host's: what the last call has set, (0, "") for nothing, and no more after that."""
    found = _Errno.code, _Errno.message
    _Errno.code, _Errno.message = SLURM_SUCCESS, ""
    return found


def _check_code(code: object) -> None:
    if type(code) is not int or code == SLURM_SUCCESS:
        raise TypeError(f"the code of a failure is an errno or a Slurm number, not {code!r}")


class PluginError(Exception):
    """Raised by a plugin's function to fail with a reason.

    `code` is an errno (`errno.ENOMEM`) or a Slurm error number (3001); the host turns it into
    SLURM_ERROR with this errno. `message` is one line for the user, in lower case without a full
    stop; without one the words of the system for `code` are taken.
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
    """True in the daemon, False in the process from which step runners are forked and in everything that comes of it:
    a thread that an init() leaves there refuses the plugin. One that init() makes is fini()'s to end.
    """
    return _Host.threads


def allow_threads(allowed: bool) -> None:  # the host's, once
    """The host's: says what `may_have_threads` answers."""
    _Host.threads = allowed
