"""The kernel's means to confine a step, compared with the configuration: findings of `nodectl doctor`.

The checks compile filter programs as the service does, and try them on a child, because a confined process stays
confined.
"""

import os
from collections.abc import Iterator

from nodectl.cli.checks.check import FAIL, OK, WARN, Check
from nodectl.kernel import _kernel
from nodectl.launch.confine import seccomp_compiler
from nodectl.launch.confine.confinement import CAP_SETPCAP, LEAST_LANDLOCK
from nodectl.launch.confine.keys import check
from nodectl.model.config import Config
from nodectl.model.confinement_level import NONE, STRICT


def all_checks(config: Config) -> Iterator[Check]:
    """Yield the findings about the configured levels, system call filters and Landlock."""
    wrong = check(config)
    if wrong:
        yield Check(FAIL, "secure", wrong, "raise the one or lower the other")
        return
    yield Check(OK, "secure", f"{config.secure} where nothing is asked for, {config.secure_floor} at least")
    why = _filters()
    if why:
        yield Check(WARN if config.secure == NONE else FAIL, "seccomp", why, 'until then secure = "none"')
    else:
        yield Check(OK, "seccomp", "no_new_privs and filters of system calls")
    yield landlock(_kernel.landlock_abi(), config.secure)


def landlock(version: int, given: str) -> Check:
    """Check whether steps can be strict; `given` is the level of steps without a request."""
    if version >= LEAST_LANDLOCK:
        return Check(OK, "Landlock", f"version {version}")
    level = FAIL if given == STRICT else WARN
    lacks = f"version {version}, {LEAST_LANDLOCK} is needed" if version else "is not there, or not enabled"
    return Check(level, "Landlock", f"{lacks}: no step can be strict", "use Linux 5.19 or later, with landlock in lsm=")


def _filters() -> str:
    """Return why seccomp(2) programs cannot be made or used, "" for success. A child tries the programs."""
    if os.geteuid() == 0 and not _kernel.capabilities()[0] & CAP_SETPCAP:
        return "CAP_SETPCAP is missing: capabilities cannot be bounded"
    try:
        made = seccomp_compiler.programs(_kernel.landlock_abi())
    except seccomp_compiler.CannotCompile as error:
        return str(error)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            seccomp_compiler.attempt(made)
        except seccomp_compiler.CannotCompile as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as said:
        why = said.read()
    os.waitpid(pid, 0)
    return why
