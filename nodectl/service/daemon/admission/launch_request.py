"""Make the Step of a launch request, or refuse the request with a single line.

Runs in the daemon, as root, and does not trust the request: its shape has been checked; its meaning is checked here,
against the machine and the caller.
"""

import os
import time
from collections.abc import Mapping, Sequence

from nodectl.launch.cgroup import shares
from nodectl.launch.cgroup.constraints import Constraints
from nodectl.launch.container import settings as container_settings
from nodectl.model import fields
from nodectl.model.config import Config
from nodectl.model.number import whole
from nodectl.model.plugstack_entry import Entry
from nodectl.model.step import Step
from nodectl.model.wire.dispatch import Refused, invalid, subject
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.service.daemon.admission.accounts import LookUpFailed, UnknownUser, User, Users, group_id
from nodectl.service.daemon.admission.binder import Binder
from nodectl.service.request import launch

_MOST_CPUS = 999_999_999
_BY_GROUP = "proctrack/pgid"
_SPANK = "SPANK_"  # variables that root's scripts would obey (PATH, LD_PRELOAD, BASH_ENV) do not begin so
_MOST_VARIABLES = 1 << 20  # bytes
USER_EPILOG_SECONDS = 5.0
_PRESERVED = ("SLURM_NNODES", "SLURM_NPROCS", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE")
_UNNUMBERED: dict[str, object] = {
    **dict.fromkeys(
        ("job_id", "step_id", "first_step", "restart", "array_job", "array_task", "job_began", "job_ends"), 0
    ),
    "select_packed": "",
}


def _total_tasks(request: Mapping[str, object]) -> int:
    """Return the number of tasks of the whole step. Raises Refused."""
    if "part" not in request:
        return int(str(request["ntasks"]))
    from nodectl.service.daemon.admission import part  # few steps are parts

    return int(str(part.shaped(request["part"])["ntasks"]))


async def who_runs(users: Users, request: Mapping[str, object], caller: int) -> User:
    """Return the account to run the step. Raises Refused.

    It is the caller's account; only root may choose another account with --uid. The group of --gid must be one of the
    account's groups, unless root asks.
    """
    wanted, looked_up = request.get("uid"), "uid"
    try:
        async with users.turns.of(caller):
            user = await users.get(caller if wanted is None or caller != 0 else str(wanted))
            if wanted is not None and caller != 0 and wanted not in (user.name, str(user.uid)):
                raise Refused("NotPermitted", f"--uid={wanted}: only root may run steps as another user")
            if request.get("gid") is None:
                return user
            looked_up = "gid"
            gid = await group_id(str(request["gid"]))
    except UnknownUser as error:
        raise Refused("InvalidRequest", f"{looked_up}: {error}", parameter=looked_up) from None
    except LookUpFailed as error:
        raise Refused("LaunchRefused", str(error), exit_status=1) from None
    if caller != 0 and gid not in user.gids:
        raise Refused("NotPermitted", f"--gid={request['gid']}: {user.name} is not in this group")
    return User(user.uid, user.name, gid, tuple({gid, *user.gids}))


def make_step(  # everything a step is made from
    request: Mapping[str, object],
    user: User,
    config: Config,
    *,
    caller: int,
    stack: Sequence[Entry],
    binder: Binder,
    constraints: Constraints,
    hard_limits: Mapping[str, int],
    secure: str,
) -> Step:
    """Return the Step of a request, without number and cgroup. Raises Refused, with the parameter's name."""
    argv: list[str] = request["argv"]  # type: ignore[assignment]  # REQUEST says so
    _check(request, config)
    layout = _layout(request, binder)
    step = Step(
        **fields.passed(request),
        **_UNNUMBERED,
        node_name=config.node_name,
        cluster_name=config.cluster_name,
        partition=config.partition_name,
        uid=user.uid,
        gid=user.gid,
        gids=list(user.gids),
        user_name=user.name,
        name=request.get("name") or os.path.basename(argv[0])[: fields.LONGEST_NAME],
        environment={**request["environment"], "NODECTL_SOCKET": config.socket},  # type: ignore[dict-item]  # its service
        hard_limits=hard_limits,
        cpus_per_task=_cpus_per_task(layout, binder.allocation),
        layout=layout,
        **_unbound(binder, int(str(request["ntasks"]))),
        kept=_kept(request),
        **_patience(config),
        **_task_scripts(request, config),
        stack=list(stack),
        job_control=_job_control(request.get("job_control", {})),  # type: ignore[arg-type]  # REQUEST says so
        container=_container(request, config),
        cgroup="",
        secure=secure,
        submitted=time.time(),
        **_memory(request, layout, config, constraints),
        **_shares(request, constraints, is_root=caller == 0),
    )
    step.binder = binder
    return step


def _task_scripts(request: Mapping[str, object], config: Config) -> dict[str, object]:
    epilogs = ((request.get("task_epilog"), USER_EPILOG_SECONDS), (config.task_epilog, 0.0))
    return {
        "task_prologs": [path for path in (config.task_prolog, request.get("task_prolog")) if path],
        "task_epilogs": [(path, seconds) for path, seconds in epilogs if path],
    }


def _kept(request: Mapping[str, object]) -> dict[str, str]:
    """With --preserve-env, return the variables about tasks and nodes of the job in which the command was typed."""
    if not request.get("preserve_env"):
        return {}
    environment: Mapping[str, str] = request["environment"]  # type: ignore[assignment]  # REQUEST says so
    return {name: environment[name] for name in _PRESERVED if name in environment}


def _check_terminal(request: Mapping[str, object], config: Config) -> None:
    """Raise Refused if the request has a terminal (--pty), and something that excludes it."""
    if not request.get("pty"):
        return
    if config.proctrack_type == _BY_GROUP:
        raise invalid("pty", f"not with {_BY_GROUP}, which does not find what has a terminal and session of its own")
    for name in ("stdin", "stdout", "stderr", "label"):
        if request.get(name):
            raise invalid(name, "it and --pty are mutually exclusive")


def _check_preload(request: Mapping[str, object], config: Config) -> None:
    """Raise Refused if the request has modules to preload, and something that excludes it."""
    if not request.get("preload"):
        return
    if request.get("pty"):
        raise invalid("preload", "not with --pty: a terminal's task leads a session, which nothing else can join")
    if config.proctrack_type == _BY_GROUP:
        raise invalid("preload", f"not with {_BY_GROUP}, which finds a step's processes by their group")


def _container(request: Mapping[str, object], config: Config) -> Mapping[str, object]:
    try:
        return container_settings.of_job(config, request.get("container_ns", ()))  # type: ignore[arg-type]
    except ValueError as error:
        raise invalid("container_ns", str(error)) from None


def _patience(config: Config) -> dict[str, object]:
    """Return the periods configured for a step, in seconds, and how tasks are started."""
    return {
        "kill_wait": config.kill_wait,
        "unkillable_timeout": config.unkillable_step_timeout,
        "suspend_grace_time": config.suspend_grace_time,
        "hook_timeout": config.spank_hook_timeout,
        "always_fork": config.always_fork,
    }


def _unbound(binder: Binder, ntasks: int) -> dict[str, object]:
    """Return the fields of a step not bound by any task plugin: every task may use all resources of the job.

    Limits are set later.
    """
    return {
        "allocation": binder.allocation,
        "cores": binder.cores,
        "base": binder.allocation,
        "step_cpus": binder.allocation,
        "cpu_masks": [0] * ntasks,
        "mems": "",
        "mem_policies": [],
        "task_variables": [],
        "devices": [],
        "limits": {},
        "device_rules": [],
        "told": [],
        "part": None,
        "within": "",
        "mpi": "",
    }


def _layout(request: Mapping[str, object], binder: Binder) -> dict[str, object]:
    """Return the options of layout and binding in force: given options, then srun's variables of the step's
    environment.

    Raises Refused.
    """
    try:
        layout = launch.options_of(request)
        own = not {"jobid", "step", "part"} & request.keys()
        binder.check(layout, int(str(request["ntasks"])), own=own)
    except NoLayout as error:
        parameter = "cpu_bind" if "cpu_bind" in request and "--cpu-bind" in error.reason else "layout"
        raise Refused("InvalidRequest", error.reason, parameter=parameter, **subject(error.subject)) from None
    return layout


def _cpus_per_task(layout: Mapping[str, object], allocation: int) -> int:
    """Return the CPUs for each task; SLURM_CPUS_PER_TASK counts too. Raises Refused."""
    text = str(layout.get("cpus_per_task", 1))
    number = whole(text, _MOST_CPUS)
    if number is None:
        raise invalid("cpus_per_task", f"{text[:20]!r} is no number of CPUs")
    if number > allocation.bit_count():
        raise invalid("cpus_per_task", f"{number} is more than the {allocation.bit_count()} CPUs of this machine")
    return number or 1


def _memory(
    request: Mapping[str, object], layout: Mapping[str, object], config: Config, constraints: Constraints
) -> dict[str, object]:
    """Return the MiB of --mem, or of --mem-per-cpu for the requested CPUs, 0 for none. Raises Refused.

    Limits are set when the step is bound.
    """
    if "mem" in request and "mem_per_cpu" in request:
        raise invalid("mem", "it and --mem-per-cpu are mutually exclusive")
    cpus = int(str(request["ntasks"])) * int(str(layout.get("cpus_per_task", 1)))
    memory = int(str(request.get("mem", 0))) or int(str(request.get("mem_per_cpu", 0))) * cpus
    check_memory(memory, constraints)
    return {"memory": memory, "oom_kill_step": request.get("oom_kill_step", "OOMKillStep" in config.task_plugin_param)}


def check_memory(memory: int, constraints: Constraints) -> None:
    """Raise Refused for more MiB than the machine has."""
    if memory > constraints.total:
        raise invalid("mem", f"{memory} MiB are more than the {constraints.total} MiB of this machine")


def _shares(request: Mapping[str, object], constraints: Constraints, *, is_root: bool) -> dict[str, object]:
    try:
        return {"shares": constraints.shares_of(shares.asked(request), is_root=is_root)}
    except shares.BadShare as error:
        raise invalid(error.parameter, str(error)) from None


def _check(request: Mapping[str, object], config: Config) -> None:
    ntasks = int(str(request["ntasks"]))
    if ntasks > config.max_tasks_per_node:
        raise invalid("ntasks", f"{ntasks} is more than max_tasks_per_node = {config.max_tasks_per_node}")
    launch.check_meaning(request, _total_tasks(request))
    _check_terminal(request, config)
    _check_preload(request, config)


def _job_control(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the job's prologs and epilogs. Raises Refused.

    The scripts run as root: every name is SPANK_ and a plain word.
    """
    variables = {}
    total = 0
    for name, value in given.items():
        if not name.isascii() or not name.replace("_", "a").isalnum():
            raise invalid("job_control", f"{name[:64]!r} is no name of letters, digits and '_'")
        whole = name if name.startswith(_SPANK) else _SPANK + name
        size = len(whole) + len(value.encode("utf-8", "surrogateescape")) + 2
        total += size
        if size > launch.LONGEST_VARIABLE or total > _MOST_VARIABLES:
            raise invalid("job_control", f"{name[:64]}: too long for an environment")
        variables[whole] = value
    return variables
