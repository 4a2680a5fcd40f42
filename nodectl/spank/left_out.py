"""What a node of a user's own leaves out, because it is root's to do. Runs in the daemon and in the
command.
"""

from nodectl.config import Config
from nodectl.model.launch_order import SLURMD_HOOKS
from nodectl.spank import plugstack
from nodectl.spank.mentioned_hooks import MentionedHooks

_SCRIPTS = ("prolog", "epilog", "prolog_slurmctld", "epilog_slurmctld")
_HOOKS = ("slurm_spank_task_init_privileged", "slurm_spank_job_prolog", "slurm_spank_job_epilog", *SLURMD_HOOKS[1:])


def left_out(config: Config) -> list[str]:
    """The scripts that are configured, and the hooks that a plugin of the stack seems to have."""
    found = [name for name in _SCRIPTS if getattr(config, name)]
    try:
        stack = plugstack.read(config.plugstack_config, config.plugin_dir).entries
    except plugstack.PlugstackError:
        return found  # each launch tells of it
    mentioned = MentionedHooks()
    return [*found, *(hook for hook in _HOOKS if mentioned.places(stack, (hook,)))]
