"""The table of the configuration: the rows of all subjects, in the order of the manual.

Imported by the daemon, and by commands where they read the configuration.
"""

from __future__ import annotations

from nodectl.launch.cgroup.keys import CGROUPS, FENCE
from nodectl.launch.confine.keys import SECURITY
from nodectl.launch.container.keys import CONTAINERS
from nodectl.launch.task.keys import STEPS
from nodectl.placement.binding.keys import BINDING
from nodectl.plugin_host.keys import PLUGINS
from nodectl.scheduler.keys import QUEUE
from nodectl.selection.keys import SELECTION
from nodectl.service.config_file.keys import FILES, JOBS, LIMITS, LOGINS, NODE, NOTICES, RECORDS
from nodectl.spank.keys import SPANK

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from nodectl.model.config.key import Key

# A default may be made of the values of rows above it.
KEYS: tuple[Key, ...] = (
    *NODE,
    *FILES,
    *PLUGINS,
    *SPANK,
    *BINDING,
    *SELECTION,
    *QUEUE,
    *CONTAINERS,
    *CGROUPS,
    *FENCE,
    *SECURITY,
    *LIMITS,
    *JOBS,
    *STEPS,
    *LOGINS,
    *NOTICES,
    *RECORDS,
)
