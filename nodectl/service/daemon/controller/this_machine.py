"""This machine as the only node of the table, and the select plugin over it. In the daemon, once at the start."""

from nodectl import messages
from nodectl.model.config import Config
from nodectl.plugin_host.loader import Plugin
from nodectl.selection.host import Selection
from nodectl.selection.loading import caller_of
from nodectl.selection.records import NodeRecord, NodeTable
from nodectl.selection.slurmctld import parameters_of
from nodectl.service.daemon.admission.binder import Binder


def selection_of(config: Config, plugin: Plugin, binder: Binder, memory: int) -> Selection:
    """Return the select plugin's Selection over this machine, which has `memory` MiB for jobs."""
    machine = binder.machine
    node = NodeRecord(
        config.node_name,
        machine,
        real_memory=memory,
        reserved_cpus=machine.usable & ~binder.allocation,
        devices=tuple(binder.node_devices),
    )
    late = (
        f"plugin {plugin.title}: a function did not return within {config.spank_hook_timeout} s, nothing interrupted it"
    )
    # A daemon that hangs serves no call: it ends, and the next one begins.
    caller = caller_of(config.spank_hook_timeout, lambda: messages.tell("plugin-late", late))
    parameters = parameters_of(config, binder.settings)
    return Selection(plugin, NodeTable([node]), caller, parameters=parameters, believes_own=True)
