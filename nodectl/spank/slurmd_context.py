"""SPANK's slurmd context: a process beside the daemon, for plugins with hooks for the daemon's start and end.

The daemon executes the process at its start, as root, in a session of its own. The process calls each plugin's
slurm_spank_init (or, for a plugin without it, slurm_spank_slurmd_init), stays, and calls slurm_spank_slurmd_exit when
the daemon ends in good order: the daemon then sends `SHUTDOWN` through the socket. If the socket ends without it, the
daemon was killed.
"""

import _signal
import os

import prctl

from nodectl import messages
from nodectl.kernel import signals
from nodectl.model import launch_order
from nodectl.model.plugstack_entry import entry_from_list
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.tracing.recorder import Recorder
from nodectl.spank import job_info, preload, probe_variable, versions
from nodectl.spank.handle import Spank
from nodectl.spank.job_script import log
from nodectl.spank.reporter import SHUTDOWN, Reporter
from nodectl.spank.spank_h import S_CTX_SLURMD
from nodectl.spank.stack import Stack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.plugin_host.caller import Outcome

REPORT = 3


def main(arguments: "Mapping[str, object]") -> None:
    """Run the slurmd context.

    `arguments`: plugins (lines of plugstack.conf), timeout (seconds), versions (spank_versions), steps (directory of
    their files).
    """
    preload.remove()
    os.setsid()
    os.set_inheritable(REPORT, False)
    prctl.set_name("nodectl-spank")
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # the terminal's are for the daemon
    os.chdir("/")
    os.umask(0o022)
    probe_variable.start_probe()
    messages.listen(log, level=messages.INFO)
    reporter = Reporter(REPORT)
    caller = PluginCaller(Recorder(-1, "slurmd"), reporter, 0, float(str(arguments["timeout"])), single_threaded=False)
    stack = reporter.stack = Stack(caller, Spank(S_CTX_SLURMD))
    reporter.entries = [entry_from_list(row) for row in arguments["plugins"]]  # type: ignore[attr-defined]  # our daemon's
    versions.accept(str(arguments["versions"]))
    job_info.STEPS[0] = str(arguments["steps"])
    outcome = stack.load(reporter.entries)
    outcome = outcome and _begin(stack)
    reporter.ended(outcome.why)
    if outcome and reporter.listen() == SHUTDOWN:  # nothing: the daemon was killed
        reporter.ended(stack.call(launch_order.SPANK_SLURMD_EXIT).why)
    stack.end()
    signals.kill_own_group()  # the processes started by plugins, and this process


def _begin(stack: Stack) -> "Outcome":
    """Call init, or slurmd_init of a plugin without init: recordings of Slurm never show both."""
    for stacked in stack.plugins:
        if launch_order.SLURMD_SPANK_INIT.call in stacked.plugin.hooks:
            stacked.plugin.hooks.pop(launch_order.SPANK_SLURMD_INIT.call, None)
    return stack.call(launch_order.SLURMD_SPANK_INIT) and stack.call(launch_order.SPANK_SLURMD_INIT)
