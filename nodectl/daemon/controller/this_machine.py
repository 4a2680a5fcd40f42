"""This machine as the one node of the table, and the select plugin over it. In the daemon, once at its start."""

from nodectl.config import Config
from nodectl.daemon.admission.binder import Binder
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.loader import Plugin
from nodectl.selection.host import Selection
from nodectl.selection.records import NodeRecord, NodeTable
from nodectl.selection.slurmctld import parameters_of
from nodectl.tracing.recorder import Recorder


def selection_of(config: Config, plugin: Plugin, binder: Binder, memory: int) -> Selection:
    """The plugin over this machine, which has so many MiB for jobs."""
    machine = binder.machine
    node = NodeRecord(
        config.node_name,
        machine,
        real_memory=memory,
        reserved_cpus=machine.usable & ~binder.allocation,
        devices=tuple(binder.node_devices),
    )
    caller = PluginCaller(Recorder(-1, "daemon"), None, 0, config.spank_hook_timeout, single_threaded=False)
    return Selection(plugin, NodeTable([node]), caller, parameters=parameters_of(config, binder.settings))
