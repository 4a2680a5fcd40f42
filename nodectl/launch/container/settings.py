"""The settings of a job's container: the configuration's words, and a user's additions.

Pure functions of values. The daemon decides when a job is admitted; the result travels in its Step, so that a later
daemon with another configuration still knows where this job's container lies.
"""

import os

from nodectl.launch.container import NAMESPACE, NONE, USER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from nodectl.model.config import Config

NAMESPACES = ("pid", "ipc", "uts", "net", "cgroup", "time", "user")
SHM = "/dev/shm"
_FLAGS = ("ro", "nosuid", "nodev", "noexec")
_MOST_DIGITS = 18
_ROOTS = (
    "container_namespaces", "container_net", "container_init_script", "container_clone_ns_script",
    "container_clone_ns_epilog",
)  # fmt: skip


class PrivateDir:
    """A line of container_dirs: a path, the options of the mount, and whether the mount is a tmpfs.

    `size` is "" for none.
    """

    __slots__ = ("options", "path", "size", "tmpfs")

    def __init__(self, path: str, options: "tuple[str, ...]", size: str, *, tmpfs: bool) -> None:
        self.path = path
        self.options = options
        self.size = size
        self.tmpfs = tmpfs

    @classmethod
    def read(cls, text: str) -> "PrivateDir":
        """Parse "/tmp", "/dev/shm:size=64M" or "/scratch:tmpfs,size=1G,noexec". Raises ValueError."""
        path, _, rest = text.partition(":")
        if not path.startswith("/") or path != os.path.normpath(path) or path in ("/", "//") or "\0" in path:
            raise ValueError(f"has {path!r}, which is no plain absolute path")
        options = [word for word in rest.split(",") if word]
        size = ""
        for word in options:
            name, _, value = word.partition("=")
            if name == "size" and _is_size(value):
                size = value
            elif word not in ("tmpfs", *_FLAGS):
                raise ValueError(f"has {path!r} with the unknown option {word!r}")
        tmpfs = "tmpfs" in options or path == SHM
        if size and not tmpfs:
            raise ValueError(f"has {path!r} with a size, but only a tmpfs has one")
        return cls(path, tuple(word for word in options if word in _FLAGS), size, tmpfs=tmpfs)


def read_dirs(texts: "Iterable[str]") -> list[PrivateDir]:
    """Parse all lines. Raises ValueError, also for a directory below another, where the mount would not be found."""
    dirs = [PrivateDir.read(text) for text in texts]
    for one in dirs:
        for other in dirs:
            if one is not other and lies_in(one.path, other.path):
                raise ValueError(f"has {one.path!r}, which lies in {other.path!r}")
    return dirs


def lies_in(path: str, directory: str) -> bool:
    """Return True if the path is the directory or lies inside."""
    return path == directory or path.startswith(f"{directory}/")


def _is_size(text: str) -> bool:
    digits = text.rstrip("%") if text.endswith("%") else text[:-1] if text[-1:] in tuple("kKmMgG") else text
    return digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS


def base_path(config: "Config") -> str:
    """Return the place of this node's containers, %h and %n expanded.

    Containers of a user's own node lie in a directory of this host's: in a home shared by hosts a node would take
    another's jobs for dead.
    """
    host = os.uname().nodename.partition(".")[0]
    path = config.container_base_path
    if config.job_container_type == USER and "%h" not in path:
        path += "/%h"
    return path.replace("%h", host).replace("%n", config.node_name)


def check(config: "Config") -> str:
    """Return the error in the combination of keys, "" for none.

    A site's own plugin may use the keys as it likes: no error then.
    """
    if config.job_container_type == USER:
        return _check_without_root(config)
    if config.job_container_type not in (NONE, NAMESPACE):
        return ""
    base = base_path(config)
    for one in read_dirs(config.container_dirs):
        if config.job_container_type == NAMESPACE and lies_in(base, one.path):
            return f"container_base_path {base} lies in {one.path}, which each job has for itself"
    if config.container_net != "none" and not config.container_net_parent:
        return f"container_net {config.container_net} wants a container_net_parent"
    if config.container_net_gateway and not config.container_net_addresses:
        return "container_net_gateway wants container_net_addresses"
    return ""


def _check_without_root(config: "Config") -> str:
    for one in read_dirs(config.container_dirs):
        if os.path.dirname(config.socket) == one.path:
            why = f"lies in {one.path}, which each job has for itself: put it a directory deeper"
            return f"the socket {config.socket} {why}"
    values = {name: getattr(config, name) for name in _ROOTS}
    if asked := [name for name, value in values.items() if value and value != "none"]:
        return f"{', '.join(asked)}: not with {USER}, which has private directories and nothing else"
    return ""


def of_job(config: "Config", asked: "Iterable[str]") -> dict[str, object]:
    """Return the member `container` of a Step. Raises ValueError with the error in the request.

    `asked` are namespaces that the user wants beside the configured ones.
    """
    asked = tuple(asked)
    for name in asked:
        if name not in NAMESPACES:
            raise ValueError(f"{name[:64]!r} is none of {', '.join(NAMESPACES)}")
    if config.job_container_type == NONE:
        if asked:
            raise ValueError(f"there are no job containers here: job_container_type is {NONE}")
        return {}
    if config.job_container_type == USER and asked:
        raise ValueError(f"{asked[0]}: {USER} has private directories and no namespaces to choose")
    namespaces = [name for name in NAMESPACES if name in asked or name in config.container_namespaces]
    return {
        "type": config.job_container_type,
        "base": base_path(config),
        "make_base": config.container_auto_base_path,
        "dirs": list(config.container_dirs),
        "shared": config.container_shared,
        "namespaces": namespaces,
        "net": _net(config) if "net" in namespaces and config.container_net != "none" else {},
        "init_script": config.container_init_script or "",
        "clone_ns_script": config.container_clone_ns_script or "",
        "clone_ns_epilog": config.container_clone_ns_epilog or "",
        "script_timeout": config.container_script_timeout,
    }


def _net(config: "Config") -> dict[str, str]:
    return {
        "kind": config.container_net,
        "parent": config.container_net_parent,
        "addresses": config.container_net_addresses,
        "gateway": config.container_net_gateway,
    }
