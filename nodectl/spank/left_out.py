"""The scripts and hooks skipped by a user's own node for lack of root. Runs in the daemon and in the command."""

from nodectl.model import launch_order
from nodectl.model.config import Config
from nodectl.spank import plugstack
from nodectl.spank.mentioned_hooks import MentionedHooks

_SCRIPTS = ("prolog", "epilog", "prolog_slurmctld", "epilog_slurmctld")
_HOOKS = (
    launch_order.SPANK_TASK_INIT_PRIVILEGED, launch_order.SPANK_JOB_PROLOG, launch_order.SPANK_JOB_EPILOG,
    launch_order.SPANK_SLURMD_INIT, launch_order.SPANK_SLURMD_EXIT,
)  # fmt: skip


def left_out(config: Config) -> list[str]:
    """Return the configured scripts and the hooks mentioned by plugins of the stack."""
    found = [name for name in _SCRIPTS if getattr(config, name)]
    try:
        stack = plugstack.read(config.plugstack_config, config.plugin_dir).entries
    except plugstack.PlugstackError:
        return found  # each launch reports it
    mentioned = MentionedHooks()
    return [*found, *(hook.call for hook in _HOOKS if mentioned.places(stack, (hook.call,)))]
