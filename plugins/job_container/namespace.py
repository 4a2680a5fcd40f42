"""job_container/namespace: each job has its own /tmp, /var/tmp and /dev/shm, and other namespaces as configured.

Configured with the keys container_*: `container_dirs` are the private directories, `container_base_path` is where
their storage lies and the namespaces are held. What a job leaves in them is removed when it ends.

The stepd makes the container (container_p_create), each task joins it as root, a single thread, before it becomes the
user (container_p_add_pid), and an errand of the forkserver's removes it when the job's epilog is over. The stepd itself
stays outside. The site's scripts run as root: the init script before the namespaces are made, the clone-ns script when
they are, on the host, and the epilog before they go. A script that fails or takes too long fails its call.

Needs Linux 5.12. Source of layout and order: job_container/tmpfs and namespace/linux of today's Slurm.
"""

import errno
import os
import time

from nodectl import container
from nodectl.cgroup import tree
from nodectl.confine import scripts
from nodectl.container import namespaces, network_link, pid1, private_dirs, settings, user_namespace
from nodectl.container.job_dir import Place, open_plain, sweep
from nodectl.kernel import _namespace, trust
from nodectl.plugin_api import PluginError
from nodectl.spank import job_environment

plugin_type = "job_container/namespace"
plugin_name = "job container by namespaces"
plugin_version = (22, 5, 8)

_LAST_WORDS = 200
_PATIENCE, _PAUSE = 20.0, 0.002  # seconds until killed processes have gone


class _State:
    cgroups = ""  # where they are mounted
    fds: dict[int, dict[str, int]] = {}  # noqa: RUF012  # one per process, by design: of this stepd's job


def init() -> int:
    """Refuses a kernel that lacks what this plugin stands on."""
    try:
        os.close(_namespace.openat2(-1, "/", os.O_PATH, 0))
        _namespace.set_mount(-1, 0, 0, False)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise PluginError(errno.ENOSYS, "needs openat2 and mount_setattr: Linux 5.12") from None
    _State.cgroups = tree.find_mount()
    return 0


def container_p_create(job_id: int) -> int:
    """Makes the job's directory and namespaces; undoes what it did where one of them fails."""
    job = container.job(job_id)
    wanted = job.step.container
    place = _place(job_id)
    try:
        place.make(job.spec, make_base=bool(wanted["make_base"]), let_go=_let_go)
    except OSError as error:
        raise PluginError(error.errno or errno.EIO, f"make {error.filename or place.path}: {error.strerror}") from None
    try:
        _fill(job, place)
    except BaseException as error:
        namespaces.close(_State.fds.pop(job_id, {}))
        _empty(job, place)
        network_link.disconnect([place])
        place.remove(job.spec)
        if not isinstance(error, OSError):
            raise
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        raise PluginError(error.errno or errno.EIO, what) from None
    finally:
        os.close(place.fd)
    return 0


def container_p_add_cont(job_id: int, cont_id: int) -> int:
    """What the caller forks from now on, the step's processes, is born in the job's pid namespace."""
    del cont_id
    fds = _State.fds.get(job_id) or _find(job_id)
    _State.fds[job_id] = fds
    try:
        namespaces.bear_in(fds)
    except OSError as error:
        raise PluginError(error.errno or errno.EIO, f"join the pid namespace: {error.strerror}") from None
    return 0


def container_p_add_pid(job_id: int, pid: int, uid: int) -> int:
    """The caller, which must be the process `pid`, enters the container and keeps no descriptor of it."""
    del uid
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
    """Runs the epilog where there is a container, and removes it. None there, or another node's, is success: then
    container_p_create was refused.
    """
    job = container.job(job_id)
    place = _place(job_id)
    if not place.is_of(job.spec):
        return 0
    why = ""
    if os.path.exists(f"{place.path}/ns/mnt"):
        why = _run(job, place, "clone_ns_epilog")
    stuck = _empty(job, place)
    linked = network_link.disconnect([place])
    left = place.remove(job.spec)
    if why or stuck or linked or left:
        raise PluginError(errno.EBUSY, "; ".join(filter(None, (why, stuck, linked, left))))
    return 0


def container_p_restore() -> int:
    """After the start of a daemon: removes the containers that are nobody's any more."""
    left = [line for base in container.bases() for line in sweep(base, _let_go)]
    if left:
        raise PluginError(errno.EBUSY, "; ".join(left))
    return 0


def _let_go(places: list[Place]) -> str:
    """Ends what dead containers have elsewhere: the first process of a pid namespace, a link."""
    for place in places:
        _stop_first(place)
    return network_link.disconnect(places)


def _stop_first(place: Place) -> None:
    try:
        place.open()
        pid1.stop(place)
        os.close(place.fd)
    except OSError:
        pass  # it was never made


def _place(job_id: int) -> Place:
    return Place(str(container.job(job_id).step.container["base"]), job_id)


def _fill(job: container.Job, place: Place) -> None:
    wanted, step = job.step.container, job.step
    for name in ("ns", "dirs"):
        os.mkdir(name, 0o700, dir_fd=place.fd)
    _require(_run(job, place, "init_script"))
    private = settings.read_dirs(wanted["dirs"])  # type: ignore[arg-type]  # settings.of_job made it
    made = private_dirs.make(place, private, step.uid, step.gid)
    try:
        kinds: list[str] = ["mnt", *wanted["namespaces"]]  # type: ignore[misc]
        who = step.identity if user_namespace.USER in kinds else None
        fds = _State.fds[step.job_id] = {}
        fds.update(
            namespaces.make(
                kinds, who, lambda begun: _prepare(job, place, kinds, made, begun.get(user_namespace.USER, -1))
            )
        )
    finally:
        private_dirs.close(made)
    held = open_plain(place.fd, "ns", os.O_RDONLY)
    try:
        namespaces.hold(held, fds)
    finally:
        os.close(held)
    net: dict[str, str] = wanted["net"]  # type: ignore[assignment]  # as above
    if net:
        _require(network_link.connect(place.base, step.job_id, net))
    _require(_run(job, place, "clone_ns_script"))


def _prepare(job: container.Job, place: Place, kinds: list[str], made: list[tuple[str, int]], user: int) -> None:
    """Inside the new namespaces; `user` stands for the one of users, in which nobody is, -1 for none."""
    private_dirs.mount(made, shared=bool(job.step.container["shared"]))
    if "net" in kinds:
        _namespace.raise_loopback()
    if "uts" in kinds:
        _namespace.set_hostname(f"{job.step.node_name}-job{job.step.job_id}"[:64])
    if namespaces.PID in kinds:
        _State.fds[job.step.job_id][namespaces.PID] = pid1.start(place, _group(job), user)


def _group(job: container.Job) -> str:
    """The cgroup of the job's own processes, beside its steps'; "" without cgroups."""
    step = job.step
    return f"{_State.cgroups}{os.path.dirname(step.cgroup)}/{pid1.GROUP}" if step.cgroup else ""


def _empty(job: container.Job, place: Place) -> str:
    """Ends the pid namespace, and with it whoever is in it, and removes its cgroup. Returns what is wrong, "" for
    nothing.
    """
    if namespaces.PID not in job.step.container["namespaces"]:  # type: ignore[operator]
        return ""
    _stop_first(place)
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
    """The namespaces of a container that another process has made."""
    place = _place(job_id)
    try:
        place.open()
    except OSError as error:
        raise PluginError(error.errno or errno.EIO, f"find the container {place.path}: {error.strerror}") from None
    try:
        held = open_plain(place.fd, "ns", os.O_RDONLY)
    finally:
        os.close(place.fd)
    try:
        return namespaces.find(held)
    finally:
        os.close(held)


def _require(why: str) -> None:
    if why:
        raise PluginError(errno.ECANCELED, why)


def _run(job: container.Job, place: Place, name: str) -> str:
    """One of the site's scripts. Returns what failed, "" for nothing."""
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
        "SLURM_JOB_MOUNTPOINT_SRC": f"{place.path}/dirs",
    }
    if name != "init_script":
        variables["SLURM_NS"] = f"{place.path}/ns/mnt"
    seconds = float(str(job.step.container["script_timeout"]))
    end = time.monotonic() + seconds
    status, output = scripts.run(path, variables, timeout=seconds or None)
    if status and seconds and time.monotonic() >= end:
        return f"{title} {path}: took longer than {seconds:g} s"
    said = " ".join(output.decode(errors="replace").split())[-_LAST_WORDS:]
    return f"{title} {path}: exit status {status}{': ' if said else ''}{said}" if status else ""
