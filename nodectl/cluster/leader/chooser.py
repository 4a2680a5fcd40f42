"""The select plugin for the nodes of a cluster's steps, named by the key `select_type`.

It runs in the leader's process, as the cluster's user. The plugin sees each step as a job: the jobs of a cluster are
its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from nodectl.model.config import Config
from nodectl.placement.binding.request import Settings
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.loader import Plugin
from nodectl.selection.host import Selection
from nodectl.selection.loading import caller_of, load_plugin, unload
from nodectl.selection.records import JobRecord, NodeTable
from nodectl.selection.slurmctld import NO, Parameters, parameters_of

CONS_TRES = "select/cons_tres"
_NO_STATE = "/nonexistent"  # what steps hold is in the leader's journal
_ANY_TIME = 0.0  # for nodectl's own plugin

Say = Callable[[str], object]


class Chooser:
    """A loaded select plugin.

    `lays_out`: true for nodectl's own select/cons_tres: a step then takes only the CPUs that its tasks need on the
    chosen nodes. Of another plugin's choice a step holds all.
    """

    def __init__(self, plugin: Plugin, caller: PluginCaller, parameters: Parameters, say: Say | None) -> None:
        self._plugin = plugin
        self._caller = caller
        self._say = say
        self.parameters = parameters
        self.lays_out = plugin.type == CONS_TRES

    def begin(self, nodes: NodeTable, jobs: Iterable[JobRecord]) -> Selection:
        """Start the plugin with the nodes, and with the jobs holding resources there. Raises SelectionFailed."""
        selection = Selection(
            self._plugin, nodes, self._caller, parameters=self.parameters, say=self._say, believes_own=True
        )
        selection.start(_NO_STATE, list(jobs))
        return selection

    def end(self) -> None:
        """Call the plugin's fini() when the leader ends."""
        if (why := unload(self._plugin, self._caller)) and self._say is not None:
            self._say(f"plugin {self._plugin.title}: fini(): {why}")


def cons_tres(settings: Settings | None = None) -> Chooser:
    """Return nodectl's own plugin, which gives cores, memory and devices."""
    caller = caller_of(_ANY_TIME)
    return Chooser(load_plugin(CONS_TRES, caller=caller), caller, Parameters(settings or Settings()), None)


def configured(config: Config, settings: Settings, say: Say) -> Chooser:
    """Return the plugin named in the configuration. Raises PluginRefused."""
    if config.select_type == CONS_TRES:
        return cons_tres(settings)
    seconds = float(config.spank_hook_timeout)
    late = f"plugin {config.select_type}: a function took longer than {seconds:g} s, and nothing interrupted it"
    caller = caller_of(seconds, lambda: say(late))
    plugin = load_plugin(config.select_type, config.plugin_dir, caller)
    # The steps of a cluster have CPUs of their own, whatever jobs of a machine share.
    parameters = replace(parameters_of(config, settings), over_subscribe=NO, share_count=1)
    return Chooser(plugin, caller, parameters, say)
