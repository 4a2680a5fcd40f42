"""Calls of task plugins, which may refuse a launch, before any process of the step exists.

Runs in the daemon, as root.
"""

import functools

from nodectl import messages
from nodectl.kernel import _kernel
from nodectl.model import launch_order
from nodectl.model.launch_order import Hook
from nodectl.model.step import Step
from nodectl.model.step_number import BATCH
from nodectl.model.wire.dispatch import Refused
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.node_plugins import NodePlugins
from nodectl.plugin_host.tracing.recorder import Recorder

_own_cgroup = functools.cache(_kernel.own_cgroup)  # which it does not leave while steps begin


def call_request(step: Step, node: NodePlugins, trace: int, timeout: float) -> None:
    """Call task_p_slurmd_launch_request in every task plugin. Raises Refused.

    For the step of a script the function is task_p_slurmd_batch_request. The messages of the plugins go with the step
    to its user; a refusal has the plugin's reason and its messages.
    """
    if step.step_id == BATCH:
        call_task_plugins(step, node, trace, timeout, launch_order.TASK_SLURMD_BATCH_REQUEST, (step,))
    else:
        call_task_plugins(step, node, trace, timeout, launch_order.TASK_SLURMD_LAUNCH_REQUEST, (step, 0))
    if step.mpi:
        node = node.with_mpi(step.mpi)
        call_task_plugins(step, node, trace, timeout, launch_order.MPI_CLIENT_PRELAUNCH, (step,))


def call_task_plugins(  # what a call needs
    step: Step, node: NodePlugins, trace: int, timeout: float, row: Hook, arguments: tuple[object, ...]
) -> None:
    """Call a function, which may refuse a launch, in every plugin of the kind. Raises Refused, as `call_request`."""
    recorder = Recorder(trace, "daemon", cgroup=_own_cgroup())
    plugin_caller = PluginCaller(recorder, None, 0, timeout, single_threaded=False)
    messages.concerns(step.job_id)
    with messages.heard(step.verbose + messages.ERROR) as lines:
        outcome = node.call(plugin_caller, row, arguments)
    messages.concerns(0)
    step.told += lines
    if not outcome:
        told = [line.removeprefix("nodectl: ").removeprefix("error: ") for line in lines]
        said = f"; it said: {'; '.join(told)}" if told else ""
        why = step.refused or f"step {step}: {outcome.why}"
        raise Refused("LaunchRefused", f"{why}{said}", exit_status=1)
