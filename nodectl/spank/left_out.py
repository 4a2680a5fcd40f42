"""The scripts and hooks skipped by a user's own node for lack of root. Runs in the daemon and in the command."""

from nodectl.model.config import Config
from nodectl.model.launch_order import SLURMD_HOOKS
from nodectl.spank import plugstack
from nodectl.spank.mentioned_hooks import MentionedHooks

_SCRIPTS = ("prolog", "epilog", "prolog_slurmctld", "epilog_slurmctld")
_HOOKS = ("slurm_spank_task_init_privileged", "slurm_spank_job_prolog", "slurm_spank_job_epilog", *SLURMD_HOOKS[1:])


def left_out(config: Config) -> list[str]:
    """Return the configured scripts and the hooks mentioned by plugins of the stack."""
    found = [name for name in _SCRIPTS if getattr(config, name)]
    try:
        stack = plugstack.read(config.plugstack_config, config.plugin_dir).entries
    except plugstack.PlugstackError:
        return found  # each launch reports it
    mentioned = MentionedHooks()
    return [*found, *(hook for hook in _HOOKS if mentioned.places(stack, (hook,)))]
