"""A process executed by the daemon for a job: it runs a Prolog or Epilog script, or the SPANK hooks of that moment.

It runs as root and has a session of its own. It enters the job's cgroup before any code of the site runs, so that all
processes left behind by a script or a plugin are found there. It dies with the daemon; the next daemon begins with the
epilog.
"""

import _signal
import os

import prctl

from nodectl.kernel import _kernel, pseudo_file
from nodectl.kernel.children import NO_PROGRAM
from nodectl.spank.reporter import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

REPORT = 3  # the descriptor that the daemon leaves open for us


def settle(cgroup: str) -> None:
    """Make a session and enter `cgroup`, the full path of a directory, "" without cgroups. Raises OSError."""
    _kernel.default_signals()
    os.setsid()
    prctl.set_pdeathsig(_signal.SIGKILL)
    if cgroup:
        pseudo_file.write(f"{cgroup}/cgroup.procs", b"0")
    os.chdir("/")
    os.umask(0o022)


def become_script(reporter: Reporter, path: str) -> None:
    """Execute the script with this process's environment, or report the error to the daemon. Does not return."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT):  # the script does not inherit what Python ignores
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execve(path, [path], os.environ)
    except OSError as error:
        reporter.ended(f"{path}: {error.strerror}")
    os._exit(NO_PROGRAM)


def main(arguments: "Mapping[str, object]") -> None:
    """Run the script of `arguments`, or the hooks as described in `nodectl.spank.job_script.call_hooks`.

    `arguments` has the cgroup, too.
    """
    os.set_inheritable(REPORT, False)
    reporter = Reporter(REPORT)
    try:
        settle(str(arguments["cgroup"]))
    except OSError as error:
        reporter.ended(f"enter {arguments['cgroup']}: {error.strerror}")
        os._exit(1)
    if "script" in arguments:
        become_script(reporter, str(arguments["script"]))
    from nodectl.spank import job_script  # not needed by a script

    reporter.ended(job_script.call_hooks(arguments, reporter))
    os._exit(0)
