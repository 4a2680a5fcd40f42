"""SPANK's job_script context: the process of a slurm_spank_job_prolog or slurm_spank_job_epilog.

The daemon executes the process as root, for one job. The process calls only that hook: no init, no option callbacks, no
exit. Its environment is the job's prolog environment; items are the job's uid, gid and id.
"""

import os

from nodectl import messages
from nodectl.kernel import pseudo_file
from nodectl.model.launch_order import ROWS
from nodectl.model.plugstack_entry import entry_from_list
from nodectl.model.step import Step
from nodectl.model.wire import lean_json
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.tracing.recorder import Recorder
from nodectl.spank import job_info, preload, probe_variable, versions
from nodectl.spank.handle import Spank
from nodectl.spank.spank_h import S_CTX_JOB_SCRIPT
from nodectl.spank.stack import Stack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.spank.reporter import Reporter


def call_hooks(arguments: "Mapping[str, object]", reporter: "Reporter") -> str:
    """Load the plugins and call the hook. Return the failure, "" for success.

    `arguments`: spec (the step's file), call, plugins (lines of plugstack.conf), timeout (seconds), versions
    (spank_versions), trace (descriptor).
    """
    preload.remove()
    job_info.STEPS[0] = os.path.dirname(str(arguments["spec"]))
    step = Step.from_json(lean_json.load_object(pseudo_file.read(str(arguments["spec"]))))
    probe_variable.start_probe()
    os.environ.pop(probe_variable.NAME, None)
    messages.listen(log, level=messages.INFO)
    trace = int(str(arguments["trace"]))
    if trace >= 0:
        os.set_inheritable(trace, False)
    recorder = Recorder(trace, "job script")
    caller = PluginCaller(recorder, reporter, 0, float(str(arguments["timeout"])), single_threaded=False)
    stack = reporter.stack = Stack(caller, Spank(S_CTX_JOB_SCRIPT, step))
    reporter.entries = [entry_from_list(row) for row in arguments["plugins"]]  # type: ignore[attr-defined]  # our daemon's
    versions.accept(str(arguments["versions"]))
    outcome = stack.load(reporter.entries)
    if outcome:
        outcome = stack.call(ROWS[str(arguments["call"])])
    stack.end()
    return outcome.why


def log(line: str) -> None:
    """Write a plugin's message into the daemon's log."""
    os.write(2, line.encode("utf-8", "surrogateescape") + b"\n")
