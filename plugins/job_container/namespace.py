"""job_container/namespace: each job has its own /tmp, /var/tmp and /dev/shm, and other namespaces as configured.

Configured with the keys container_*: `container_dirs` are the private directories; `container_base_path` is the place
of their storage and of the files that hold the namespaces. The directories' content is removed when the job ends.

The stepd makes the container (container_p_create), each task joins it as root, a single thread, before it becomes the
user (container_p_add_pid), and a container request removes it after the job's epilog. The stepd itself stays outside.
The site's scripts run as root: the init script before the namespaces are made, the clone-ns script after that, on the
host, and the epilog before their removal. A script that fails or takes too long fails its call.

Needs Linux 5.12. Source of layout and order: job_container/tmpfs and namespace/linux of today's Slurm.
"""

import errno
import os
import time

from nodectl.kernel import _namespace, trust
from nodectl.launch import container
from nodectl.launch.cgroup import tree
from nodectl.launch.confine import scripts
from nodectl.launch.container import namespaces, network_link, pid1, private_dirs, settings, user_namespace
from nodectl.launch.container.job_dir import JobDir, open_plain, sweep
from nodectl.plugin_api import PluginError
from nodectl.spank import job_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.kernel.operations import Operation
    from nodectl.model.step import Step, Task

plugin_type = "job_container/namespace"
plugin_name = "job container by namespaces"
plugin_version = (22, 5, 8)

_LAST_WORDS = 200
_PATIENCE, _PAUSE = 20.0, 0.002  # seconds until killed processes have gone


class _State:
    cgroups = ""  # where they are mounted
    fds: dict[int, dict[str, int]] = {}  # noqa: RUF012  # one per process, by design: of this stepd's job


def init() -> int:
    """Refuse a kernel without the features of namespaces and mounts used by this plugin."""
    namespaces.require_kernel()
    _State.cgroups = tree.find_mount()
    return 0


def container_p_create(job_id: int) -> int:
    """Make the job's directory and namespaces; undo everything after a failure."""
    job = container.job(job_id)
    wanted = job.step.container
    job_dir = _job_dir(job_id)
    try:
        job_dir.make(job.spec, make_base=bool(wanted["make_base"]), release=_release)
    except OSError as error:
        raise PluginError(
            error.errno or errno.EIO, f"make {error.filename or job_dir.path}: {error.strerror}"
        ) from None
    try:
        _fill(job, job_dir)
    except BaseException as error:
        namespaces.close(_State.fds.pop(job_id, {}))
        _empty(job, job_dir)
        network_link.disconnect([job_dir])
        job_dir.remove(job.spec)
        if not isinstance(error, OSError):
            raise
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        raise PluginError(error.errno or errno.EIO, what) from None
    finally:
        os.close(job_dir.fd)
    return 0


def container_p_add_cont(job_id: int, cont_id: int) -> int:
    """Put all future children of the caller into the job's pid namespace."""
    fds = _State.fds.get(job_id) or _find(job_id)
    _State.fds[job_id] = fds
    try:
        namespaces.set_for_children(fds)
    except OSError as error:
        raise PluginError(error.errno or errno.EIO, f"join the pid namespace: {error.strerror}") from None
    return 0


def container_p_add_pid_plan(step: "Step", task: "Task") -> "list[Operation] | None":
    """Return the operations by which a task joins the container, or None if a fork must call container_p_add_pid.

    Runs in the stepd, as root.
    """
    fds = _State.fds.get(step.job_id) or _find(step.job_id)
    _State.fds[step.job_id] = fds
    return namespaces.joining(fds, own_cgroup=namespaces.CGROUP in step.container["namespaces"])  # type: ignore[operator]


def container_p_add_pid(job_id: int, pid: int, uid: int) -> int:
    """Move the caller, which must be the process `pid`, into the container and close the container's descriptors."""
    if pid != os.getpid():
        raise PluginError(errno.EINVAL, f"process {pid} must join by itself")
    fds = _State.fds.pop(job_id, None) or _find(job_id)
    try:
        namespaces.join(fds)
        if namespaces.CGROUP in container.job(job_id).step.container["namespaces"]:  # type: ignore[operator]
            _namespace.unshare(_namespace.CLONE_NEWCGROUP)
    except OSError as error:
        raise PluginError(error.errno or errno.EIO, f"join the container: {error.strerror}") from None
    finally:
        namespaces.close(fds)
    return 0


def container_p_delete(job_id: int) -> int:
    """Run the epilog script if there is a container, and remove the container.

    Succeed if there is no container or if the container belongs to another node: container_p_create was refused then.
    """
    job = container.job(job_id)
    job_dir = _job_dir(job_id)
    if not job_dir.belongs_to(job.spec):
        return 0
    why = ""
    if os.path.exists(f"{job_dir.path}/ns/mnt"):
        why = _run(job, job_dir, "clone_ns_epilog")
    stuck = _empty(job, job_dir)
    linked = network_link.disconnect([job_dir])
    left = job_dir.remove(job.spec)
    if why or stuck or linked or left:
        raise PluginError(errno.EBUSY, "; ".join(filter(None, (why, stuck, linked, left))))
    return 0


def container_p_restore() -> int:
    """Remove the containers of ended jobs. Called after the daemon's start."""
    left = [line for base in container.bases() for line in sweep(base, _release)]
    if left:
        raise PluginError(errno.EBUSY, "; ".join(left))
    return 0


def _release(job_dirs: list[JobDir]) -> str:
    """Stop pid 1 and remove the network link of each dead container."""
    for job_dir in job_dirs:
        _stop_pid1(job_dir)
    return network_link.disconnect(job_dirs)


def _stop_pid1(job_dir: JobDir) -> None:
    opened = JobDir(job_dir.base, int(job_dir.name))  # the caller's may be open
    try:
        opened.open()
    except OSError:
        return  # it was never made
    try:
        pid1.stop(opened)
    finally:
        os.close(opened.fd)


def _job_dir(job_id: int) -> JobDir:
    return JobDir(str(container.job(job_id).step.container["base"]), job_id)


def _fill(job: container.ContainedJob, job_dir: JobDir) -> None:
    wanted, step = job.step.container, job.step
    for name in ("ns", "dirs"):
        os.mkdir(name, 0o700, dir_fd=job_dir.fd)
    _require(_run(job, job_dir, "init_script"))
    private = settings.read_dirs(wanted["dirs"])  # type: ignore[arg-type]  # settings.of_job made it
    made = private_dirs.make(job_dir, private, step.uid, step.gid)
    try:
        kinds: list[str] = ["mnt", *wanted["namespaces"]]  # type: ignore[misc]
        identity = step.identity if user_namespace.USER in kinds else None
        fds = _State.fds[step.job_id] = {}
        fds.update(
            namespaces.make(
                kinds, identity, lambda begun: _prepare(job, job_dir, kinds, made, begun.get(user_namespace.USER, -1))
            )
        )
    finally:
        private_dirs.close(made)
    held = open_plain(job_dir.fd, "ns", os.O_RDONLY)
    try:
        namespaces.hold(held, fds)
    finally:
        os.close(held)
    net: dict[str, str] = wanted["net"]  # type: ignore[assignment]  # as above
    if net:
        _require(network_link.connect(job_dir.base, step.job_id, net))
    _require(_run(job, job_dir, "clone_ns_script"))


def _prepare(
    job: container.ContainedJob, job_dir: JobDir, kinds: list[str], made: list[tuple[str, int]], user: int
) -> None:
    """Set up the new namespaces from inside; `user` is a descriptor of the user namespace, -1 for none.

    The caller is not in the user namespace.
    """
    private_dirs.mount(made, shared=bool(job.step.container["shared"]))
    if "net" in kinds:
        _namespace.raise_loopback()
    if "uts" in kinds:
        _namespace.set_hostname(f"{job.step.node_name}-job{job.step.job_id}"[:64])
    if namespaces.PID in kinds:
        _State.fds[job.step.job_id][namespaces.PID] = pid1.start(job_dir, _group(job), user)


def _group(job: container.ContainedJob) -> str:
    """Return the cgroup of the job's own processes, beside the steps' cgroups; "" without cgroups."""
    step = job.step
    return f"{_State.cgroups}{os.path.dirname(step.cgroup)}/{container.GROUP}" if step.cgroup else ""


def _empty(job: container.ContainedJob, job_dir: JobDir) -> str:
    """Kill all processes of the pid namespace and remove the job's cgroup. Return the failure, "" for success."""
    if namespaces.PID not in job.step.container["namespaces"]:  # type: ignore[operator]
        return ""
    _stop_pid1(job_dir)
    if not _group(job):
        return ""
    group = tree.Group(_group(job))
    end = time.monotonic() + _PATIENCE
    while not group.remove():
        if time.monotonic() > end:
            return f"{group.full_path}: cannot be removed, processes {group.pids()} do not die"
        group.kill_all()
        time.sleep(_PAUSE)
    tree.Group(os.path.dirname(group.full_path)).remove()  # the job's, if nothing else is in it
    return ""


def _find(job_id: int) -> dict[str, int]:
    """Open the namespaces of a container made by another process."""
    job_dir = _job_dir(job_id)
    try:
        job_dir.open()
    except OSError as error:
        raise PluginError(error.errno or errno.EIO, f"find the container {job_dir.path}: {error.strerror}") from None
    try:
        held = open_plain(job_dir.fd, "ns", os.O_RDONLY)
    finally:
        os.close(job_dir.fd)
    try:
        return namespaces.find(held)
    finally:
        os.close(held)


def _require(why: str) -> None:
    if why:
        raise PluginError(errno.ECANCELED, why)


def _run(job: container.ContainedJob, job_dir: JobDir, name: str) -> str:
    """Run a script of the site. Return the failure, "" for success."""
    path = str(job.step.container[name])
    if not path:
        return ""
    title = name.replace("_", " ")
    try:
        trust.check(path)
    except trust.Untrusted as error:
        return f"{title} {path}: not trusted: {error}"
    except OSError as error:
        return f"{title} {path}: {error.strerror}"
    variables = {
        **job_environment.for_job(job.step, name),
        "SLURM_JOB_MOUNTPOINT_SRC": f"{job_dir.path}/dirs",
    }
    if name != "init_script":
        variables["SLURM_NS"] = f"{job_dir.path}/ns/mnt"
    seconds = float(str(job.step.container["script_timeout"]))
    end = time.monotonic() + seconds
    status, output = scripts.run(path, variables, timeout=seconds or None)
    if status and seconds and time.monotonic() >= end:
        return f"{title} {path}: took longer than {seconds:g} s"
    said = " ".join(output.decode(errors="replace").split())[-_LAST_WORDS:]
    return f"{title} {path}: exit status {status}{': ' if said else ''}{said}" if status else ""
