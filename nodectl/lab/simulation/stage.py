"""The set-up of a play: the plugin, the plugin's host over a table of nodes, the queue, the rules."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field

from nodectl.lab.simulation.play import Player
from nodectl.lab.simulation.story import Played
from nodectl.lab.simulation.submission import BEGINNING
from nodectl.lab.simulation.watch import Told, Watch
from nodectl.lab.simulation.workload import Workload
from nodectl.scheduler.policy import Policy
from nodectl.selection.host import Selection
from nodectl.selection.loading import caller_of, load_plugin, unload
from nodectl.selection.records import NodeTable
from nodectl.selection.slurmctld import Parameters


@dataclass(frozen=True, slots=True)
class Setting:
    """The rules of a play, and the directories of plugins.

    `seconds`: the time limit of a call of the plugin, 0 for none; `epilog`: seconds for which an ended job still holds
    its resources.
    """

    policy: Policy = field(default_factory=Policy)
    parameters: Parameters = field(default_factory=Parameters)
    plugin_dirs: tuple[str, ...] = ()
    seconds: float = 10.0
    epilog: float = 0.0


def play(
    plugin_name: str,
    nodes: NodeTable,
    workload: Workload,
    setting: Setting,
    *,
    told: Told | None = None,
    say: Callable[[str], object] = lambda text: None,
    ended: Callable[[int], object] = lambda jobs: None,
) -> Played:
    """Play a workload against a plugin, given by type or file. Raises PluginRefused, SelectionFailed.

    `told` receives each call of the plugin, `say` each message for the log, `ended` the number of ended jobs.
    """
    caller = caller_of(setting.seconds)
    plugin = load_plugin(plugin_name, setting.plugin_dirs, caller)
    try:
        watch = Watch(plugin, nodes, told)
        selection = Selection(plugin, nodes, caller, parameters=setting.parameters, say=say)
        with tempfile.TemporaryDirectory(prefix="nodectl-select-") as state_dir:
            selection.start(state_dir, now=BEGINNING)
            player = Player(selection, setting.policy, workload, epilog=setting.epilog, ended=ended)
            watch.time = lambda: player.now
            played = player.play()
            selection.save(state_dir)
        selection.end()
        played.calls = watch.spent
        return played
    finally:
        unload(plugin, caller)
