"""Whether files in jobs' private directories can fill the file system of the service's own state.

For `nodectl doctor` and the start of the service.
"""

import os

from nodectl.launch.container import NAMESPACE, settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.config import Config

ADVICE = "set container_base_path to a directory of another file system, or give each a size: /tmp:tmpfs,size=4G"
_QUOTAS = frozenset({"quota", "uquota", "usrquota", "usrjquota"})  # mount options of ext4, XFS and others


def complaint(config: "Config") -> str:
    """Return how a user can leave the service without room for its queue, "" if no user can."""
    if config.job_container_type != NAMESPACE:
        return ""
    stored = [
        one.path for one in settings.read_dirs(config.container_dirs) if not one.tmpfs and "ro" not in one.options
    ]
    base, state = settings.base_path(config), config.state_dir
    device = os.stat(_nearest(state)).st_dev
    if not stored or os.stat(_nearest(base)).st_dev != device or _has_quotas(device):
        return ""
    return (
        f"{base}, where jobs store their own {' and '.join(stored)}, and state_dir {state} are on one file system "
        "without quotas for users: a user who fills it stops the queue for all"
    )


def _nearest(path: str) -> str:
    """Return the path, or the nearest existing directory above."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _has_quotas(device: int) -> bool:
    """Return True if the file system is mounted with quotas for users."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.split() for line in file]
    options = {word.partition("=")[0] for words in mounts if words[2] == number for word in words[-1].split(",")}
    return not _QUOTAS.isdisjoint(options)
