"""The sweep after an earlier daemon: takes over running steps, records ended steps, removes leftovers.

It also records steps that ended with the machine. Leftovers are files and cgroups of no step. The sweep runs once at
the start of a daemon, before it listens. By then neither the earlier daemon nor its forkserver lives, as both held the
lock; so no new stepd can appear. Every step has a spec file from before its first fork until it is in the history:
files and cgroups without one belong to no step.
"""

import os
import time
from collections.abc import Iterator

from nodectl.launch import container
from nodectl.launch.cgroup import slurms, tree
from nodectl.launch.cgroup.delegation import Base
from nodectl.launch.stepd.record import room
from nodectl.model.states import NODE_FAIL
from nodectl.model.step import Step
from nodectl.model.step_number import FIRST_STEPS, step_number
from nodectl.model.wire import lean_json
from nodectl.plugin_host.tracing import room as trace_room
from nodectl.service.daemon.jobs.cgroup_removals import end_what_is_left, try_to_remove
from nodectl.service.daemon.jobs.node_jobs import NodeJobs
from nodectl.service.daemon.jobs.prolog_epilog import PROLOG
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.recovery.lock import Lock
from nodectl.service.daemon.steps.files import StepFiles
from nodectl.service.daemon.steps.live import LiveStep

_PAUSE = 0.01
PRIVATE = "private."


def sweep(registry: Registry, jobs: NodeJobs, base: Base, scope: str = "") -> None:
    """Take over running steps, record ended steps, remove leftovers (see the module).

    `base` is the place of jobs' cgroups. `scope` is the place of Slurm's cgroups, if this daemon's steps may be in
    Slurm's jobs.
    """
    for files in _specs(registry.directory):
        _take_over(registry, jobs, base.mount, files)
    for name in os.listdir(registry.directory):
        if not os.path.exists(f"{registry.directory}/{_stem(name)}.json"):
            os.unlink(f"{registry.directory}/{name}")
    jobs.resources.found_suspended()
    registry.batch.flush()
    registry.reset_notes.record_lost(registry.live.keys() | registry.ending.keys())
    if base.path:
        _remove_strays(registry, jobs, base)
    if base.path and scope:
        _remove_slurms_strays(registry, jobs, base.mount, scope)


def _specs(directory: str) -> Iterator[StepFiles]:
    """Yield the files of all steps, a job's first step last.

    Whether the job is over depends on its other steps. The first step is the script's or the allocation's where there
    is one, else number 0.
    """
    found = []
    for name in os.listdir(directory):
        job, _, word = name.removesuffix(".json").partition(".")
        step = step_number(word)
        if name.endswith(".json") and job.isdecimal() and step is not None:
            found.append((int(job), step))
    for number, of_job in sorted(found, key=lambda one: (one[0], one[1] in FIRST_STEPS[1:], -one[1])):
        yield StepFiles(directory, number, of_job)


def _stem(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _take_over(registry: Registry, jobs: NodeJobs, mount: str, files: StepFiles) -> None:
    data = files.read(".json") or b""
    step = _step_of(data)
    if step is None:
        files.remove()  # the daemon was killed while it wrote: no client knows of this step
        return
    live = LiveStep(step, files, jobs.step_ended, jobs.step_ending)
    size = len(data)
    live.size = size + room(step, size) + trace_room.of(step)
    live.needs_epilog = files.needs_epilog()
    registry.live[live.key] = live
    if not step.is_first:
        jobs.further_steps.add(step)
    if files.in_prolog():
        live.interrupted = True
        live.fail("the service ended while the job's prolog ran")
        return
    live.suspended = bool(step.cgroup) and tree.Group(f"{mount}{step.cgroup}/user").is_to_freeze()
    live.reach(lambda: live.fail("the step runner died while the service was away", NODE_FAIL))


def _step_of(data: bytes) -> Step | None:
    """Return the step of a spec file, None for a malformed file."""
    try:
        return Step.from_json(lean_json.load_object(data))
    except (lean_json.BadJson, KeyError, TypeError, ValueError):
        return None


def _remove_strays(registry: Registry, jobs: NodeJobs, base: Base) -> None:
    """Kill and remove the cgroups of steps without a file."""
    place = base.mount + base.path
    known = {live.step.cgroup for live in registry.live.values()}
    # Processes of a job's prolog live as long as the job, and so does the first process of its pid namespace.
    known |= {f"{os.path.dirname(path)}/{name}" for path in known for name in (PROLOG.name, container.GROUP)}
    for job in _directories(place):
        if job.name in (tree.RUNNERS, tree.NOTICES):
            continue  # runners of a step stay, the others end with their forkserver; couriers end by themselves
        for step in _directories(job.path):
            if step.path.removeprefix(base.mount) not in known:
                _remove_stray(jobs, base.mount, step.path)
        try:
            os.rmdir(job.path)
        except OSError:
            continue  # a step that still runs, or is still being emptied


def _directories(path: str) -> list[os.DirEntry[str]]:
    try:
        return [entry for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _remove_slurms_strays(registry: Registry, jobs: NodeJobs, mount: str, scope: str) -> None:
    """Kill and remove the cgroups of steps without a file, within Slurm's jobs."""
    known = {mount + live.step.cgroup for live in registry.live.values()}
    for path in slurms.steps_below(mount + scope) - known:
        _remove_stray(jobs, mount, path)


def _remove_stray(jobs: NodeJobs, mount: str, path: str) -> None:
    group = tree.Group(path)
    end_what_is_left(group)
    if not try_to_remove(group):
        jobs.cgroup_removals.begin(path.removeprefix(mount))


def remove_dead_private_nodes(runtime_dir: str) -> None:
    """Remove the directories of private nodes with killed clients, once no process holds the lock."""
    try:
        names = [name for name in os.listdir(runtime_dir) if name.startswith(PRIVATE)]
    except FileNotFoundError:
        return
    for name in names:
        directory = f"{runtime_dir}/{name}"
        lock = Lock.take(directory, wait=False)
        if lock is None:
            continue
        steps = list(_specs(f"{directory}/steps")) if os.path.isdir(f"{directory}/steps") else []
        if not any(files.alive() for files in steps):
            _remove_cgroups(steps)
            import shutil  # its own imports are costly: only where needed

            shutil.rmtree(directory, ignore_errors=True)
        lock.release()


def _remove_cgroups(steps: list[StepFiles]) -> None:
    """Remove the cgroups of a dead private node's steps."""
    mount = tree.find_mount()
    bases = set()
    for files in steps:
        step = _step_of(files.read(".json") or b"")
        if step is not None and step.cgroup and mount:
            path = step.cgroup
            for group in (tree.Group(mount + path), tree.Group(f"{mount}{os.path.dirname(path)}/{container.GROUP}")):
                group.kill_all()
                for _ in range(100):
                    if try_to_remove(group):
                        break
                    time.sleep(_PAUSE)
            bases.add(os.path.dirname(os.path.dirname(mount + path)))
    for base in bases:
        tree.Group(base).remove()
