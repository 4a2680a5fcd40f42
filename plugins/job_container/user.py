"""job_container/user: each job of a user's own node has its own /tmp, /var/tmp and /dev/shm, without root.

Configured with container_dirs, container_base_path, container_auto_base_path and container_shared. The directories'
content is removed when the job ends.

The storage is the job's, in BASE/HOST/JOB. The namespaces are a step's: its stepd makes them (container_p_add_cont),
with the job's storage in the places of the directories, and holds them by two descriptors until it ends. Each task
enters them and gives up every capability there (container_p_add_pid). A directory on a tmpfs, as /dev/shm, is private
to each step, and vanishes with it.

All mounts inside are nosuid: programs with set-user-ID or with capabilities of their own run without these. Users other
than this one, and groups other than the primary one, show as nobody's. Needs Linux 5.12.
"""

import errno
import os

from nodectl.kernel import _namespace
from nodectl.launch import container
from nodectl.launch.container import namespaces, own_namespaces, private_dirs, settings
from nodectl.launch.container.job_dir import JobDir, open_plain, sweep
from nodectl.plugin_api import PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.step import Step

plugin_type = "job_container/user"
plugin_name = "job container by a user namespace"
plugin_version = (22, 5, 8)

_INSTEAD = f'without containers: job_container_type = "{container.NONE}"'
_fds: dict[int, dict[str, int]] = {}  # by job: of the step that this process runs or enters


def init() -> int:
    """Refuse root (for which job_container/namespace is made) and a kernel without the necessary features."""
    if os.geteuid() == 0:
        raise PluginError(errno.EINVAL, f'is for nodes without root; root has "{container.NAMESPACE}"')
    namespaces.require_kernel()
    return 0


def container_p_create(job_id: int) -> int:
    """Make the job's storage."""
    _make_storage(job_id, container.job(job_id).spec, may_exist=False)
    return 0


def container_p_add_cont(job_id: int, cont_id: int) -> int:
    """Make the namespaces of a step or of a visitor to the job."""
    job = container.job(job_id)
    if job.step.part is not None:  # its job has no first step here, and its storage ends with this node
        _make_storage(job_id, os.path.dirname(job.spec), may_exist=True)
    namespaces.close(_fds.pop(job_id, {}))
    try:
        base = _job_dir(job.step).trusted_base()
        _fds[job_id] = own_namespaces.make(job.step.uid, job.step.gid, lambda: _mount(job.step, base))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise PluginError(error.errno or errno.EIO, f"{where}{error.strerror}; {_INSTEAD}") from None
    return 0


def container_p_add_pid(job_id: int, pid: int, uid: int) -> int:
    """Move the caller, which must be the process `pid`, into the namespaces for good."""
    if pid != os.getpid():
        raise PluginError(errno.EINVAL, f"process {pid} must join by itself")
    if job_id not in _fds:
        raise PluginError(errno.ESRCH, "this process was given no container")
    try:
        own_namespaces.enter(_fds.pop(job_id), container.job(job_id).step.identity)
    except OSError as error:
        raise PluginError(error.errno or errno.EIO, f"join the container: {error.strerror}") from None
    return 0


def container_p_delete(job_id: int) -> int:
    """Remove the job's storage.

    Succeed if there is no storage or if it belongs to another node: container_p_create was refused then.
    """
    job = container.job(job_id)
    job_dir = _job_dir(job.step)
    if job_dir.belongs_to(job.spec) and (left := job_dir.remove(job.spec)):
        raise PluginError(errno.EBUSY, left)
    return 0


def container_p_restore() -> int:
    """Remove the storage of ended jobs. Called after the daemon's start."""
    if left := [line for base in container.bases() for line in sweep(base, _nothing_else)]:
        raise PluginError(errno.EBUSY, "; ".join(left))
    return 0


def _make_storage(job_id: int, owner: str, *, may_exist: bool) -> None:
    step = container.job(job_id).step
    job_dir = _job_dir(step)
    make_base = bool(step.container["make_base"])
    try:
        job_dir.make(owner, make_base=make_base, release=_nothing_else, may_exist=may_exist)
        try:
            os.mkdir("dirs", 0o700, dir_fd=job_dir.fd)
        except FileExistsError:
            pass  # another step was first
        finally:
            os.close(job_dir.fd)
    except OSError as error:
        where = error.filename if os.path.isabs(error.filename or "") else job_dir.path
        raise PluginError(error.errno or errno.EIO, f"make {where}: {error.strerror}") from None


def _job_dir(step: "Step") -> JobDir:
    return JobDir(str(step.container["base"]), step.job_id)


def _nothing_else(_: list[JobDir]) -> str:
    """Return "": a container has nothing beside the job's directory."""
    return ""


def _mount(step: "Step", trusted_base: str) -> None:
    """Mount the step's private directories in the new namespaces. Raises OSError."""
    job_dir = _job_dir(step)
    job_dir.open(trusted_base)  # in this mount namespace, because descriptors of another one cannot be mounted here
    private = settings.read_dirs(step.container["dirs"])  # type: ignore[arg-type]  # settings.of_job made it
    for one in private:
        one.options = (*one.options, "nodev")
    made = private_dirs.make(job_dir, private, step.uid, step.gid, may_exist=True)
    door, shown = _door(step, [one.path for one in private])
    private_dirs.mount(made, shared=bool(step.container["shared"]))
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    if door:
        os.makedirs(door, 0o700, exist_ok=True)
        _namespace.move_mount(shown, open_plain(root, door[1:]))
    _namespace.set_mount(root, _namespace.MOUNT_ATTR_NOSUID, 0, True)


def _door(step: "Step", hidden: list[str]) -> tuple[str, int]:
    """Return the directory of a hidden node socket and a mount of the directory, else ("", -1).

    A private directory may hide the socket from commands within the job.
    """
    path = os.path.dirname(step.environment.get("NODECTL_SOCKET", ""))
    if not any(settings.lies_in(path, one) for one in hidden):
        return "", -1
    return path, _namespace.clone_mount(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
