"""From a launch request to the Step that is run, or one line why not.

Runs in the daemon, as root, and does not trust the request: its shape has been checked; its meaning is checked here,
against the machine and the caller.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nodectl.binding.options import NAMES, check_text, gathered
from nodectl.binding.refused import Refused as NoLayout
from nodectl.cgroup import shares
from nodectl.cgroup.constraints import Constraints
from nodectl.config import Config
from nodectl.container import settings as container_settings
from nodectl.daemon.admission.accounts import UnknownUser, User, Users, group_id
from nodectl.daemon.admission.binder import Binder
from nodectl.model.number import whole
from nodectl.model.plugstack_entry import Entry
from nodectl.model.step import Step
from nodectl.task import programs
from nodectl.task.keys import RLIMITS
from nodectl.wire import lean_json
from nodectl.wire.dispatch import Refused, invalid
from nodectl.wire.shape import Optional, array, boolean, integer, mapping, text

if TYPE_CHECKING:
    from nodectl.wire.shape import Shape

_MOST_BESIDE = 256 << 10  # bytes of a request, as JSON, beside what execve(2) bounds, or `_job_control`
_BOUNDED = ("argv", "environment", "job_control")
_WORD = text(131_072)  # MAX_ARG_STRLEN: what execve(2) takes
_PATH = text(4096)
_LONGEST_NAME = 1024
_YEAR = 366 * 86_400
_MOST_CPUS = 999_999_999
MEMORY = integer(0, 1 << 40)  # MiB
_LIMIT = integer(-1, 2**63 - 1)
_LONGEST_LIST = 131_072
_BY_GROUP = "proctrack/pgid"
_OF_TERMINAL = 5  # figures: the task, rows, columns, and both in pixels
_TEXTS = mapping(text(8 << 20), most=64)  # each is bounded by its name


def _anything(_: object) -> str:
    return ""


def _texts_of_layout(value: object) -> str:
    """The shape of `layout`: a text for each option that there is."""
    wrong = _TEXTS(value)
    if wrong:
        return wrong
    for name, word in value.items():  # type: ignore[attr-defined]  # a mapping
        if name not in NAMES:
            return f"no option of layout is called {name[:64]!r}"
        try:
            check_text(name, word)
        except NoLayout as error:
            return error.reason
    return ""


def _programs(value: object) -> str:
    """The shape of `programs`: rows of a list of tasks and an argv."""
    wrong = _ROWS(value)
    if wrong:
        return wrong
    for row in value:  # type: ignore[attr-defined]  # an array
        whole_row = len(row) > 1 and row[2:] in ([], [True])
        wrong = _TASKS(row[0]) or _ARGV(row[1]) if whole_row else "is not a list of tasks and an argv"
        if wrong:
            return wrong
    return ""


_ROWS, _TASKS, _ARGV = array(array(_anything, most=3), most=4096), text(65_536), array(_WORD, most=4096)

REQUEST: "Shape" = {
    "argv": array(_WORD, most=65_536),
    "environment": mapping(text(2 << 20), most=65_536),
    "cwd": _PATH,
    "ntasks": integer(1, 2**31),
    "cpus_per_task": Optional(integer(1, 2**31)),
    "name": Optional(text(_LONGEST_NAME)),
    "time_limit": Optional(integer(1, _YEAR)),
    "cpu_bind": Optional(text(_LONGEST_LIST)),
    "layout": Optional(_texts_of_layout),
    "stdin": Optional(_PATH),
    "stdout": Optional(_PATH),
    "stderr": Optional(_PATH),
    "open_append": Optional(boolean),
    "label": Optional(boolean),
    "unbuffered": Optional(boolean),
    "kill_on_bad_exit": Optional(boolean),
    "pty": Optional(array(integer(0, 0xFFFF), most=5)),
    "bulk": Optional(boolean),
    "preserve_env": Optional(boolean),
    "programs": Optional(_programs),
    "verbose": Optional(integer(0, 10)),
    "umask": Optional(integer(0, 0o777)),
    "rlimits": Optional(mapping(_LIMIT, most=16)),
    "options": Optional(array(array(text(65_536), most=3), most=256)),
    "job_control": Optional(mapping(_WORD, most=4096)),
    "task_prolog": Optional(_PATH),
    "task_epilog": Optional(_PATH),
    "uid": Optional(text(256)),
    "gid": Optional(text(256)),
    "job": Optional(integer(1, 2**32 - 1)),
    "step": Optional(integer(0, 2**32 - 1)),
    "jobid": Optional(integer(1, 2**32 - 1)),
    "container_ns": Optional(array(text(16), most=16)),
    "mem": Optional(MEMORY),
    "mem_per_cpu": Optional(MEMORY),
    "oom_kill_step": Optional(boolean),
    "secure": Optional(text(16)),
    "mpi": Optional(text(64)),
    "mpi_linked": Optional(text(64)),
    **shares.REQUEST,
}

_SPANK = "SPANK_"  # variables that root's scripts would obey (PATH, LD_PRELOAD, BASH_ENV) do not begin so
_LONGEST_VARIABLE = 128 * 1024  # MAX_ARG_STRLEN, with '=' and NUL
_LONGEST_OPTION = _LONGEST_VARIABLE - 1024  # without what its name begins with
_MOST_VARIABLES = 1 << 20  # bytes
USER_EPILOG_SECONDS = 5.0
_PRESERVED = ("SLURM_NNODES", "SLURM_NPROCS", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE")
_UNNUMBERED = dict.fromkeys(
    ("job_id", "step_id", "first_step", "restart", "array_job", "array_task", "job_began", "job_ends"), 0
)


async def who_runs(users: Users, request: Mapping[str, object], caller: int) -> User:
    """The account that the step runs as: the caller's, or with --uid/--gid, from root, another. Raises Refused."""
    wanted = request.get("uid")
    try:
        async with users.turns.of(caller):
            user = await users.get(caller if wanted is None or caller != 0 else str(wanted))
            if wanted is not None and caller != 0 and wanted not in (user.name, str(user.uid)):
                raise Refused("NotPermitted", f"--uid={wanted}: only root may run steps as another user")
            if request.get("gid") is None:
                return user
            gid = await group_id(str(request["gid"]))
    except UnknownUser as error:
        raise Refused("InvalidRequest", str(error), parameter="uid") from None
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
    """The Step that a request means, without its number and cgroup. Raises Refused, naming the parameter."""
    argv: list[str] = request["argv"]  # type: ignore[assignment]  # REQUEST says so
    _check(request, argv, config)
    layout = _layout(request, binder)
    step = Step(
        **_UNNUMBERED,
        node_name=config.node_name,
        cluster_name=config.cluster_name,
        partition=config.partition_name,
        uid=user.uid,
        gid=user.gid,
        gids=list(user.gids),
        user_name=user.name,
        name=request.get("name") or os.path.basename(argv[0])[:_LONGEST_NAME],
        argv=argv,
        environment={**request["environment"], "NODECTL_SOCKET": config.socket},  # type: ignore[dict-item]  # its service
        cwd=request["cwd"],
        umask=request.get("umask", 0o022),
        hard_limits=hard_limits,
        rlimits=request.get("rlimits", {}),
        ntasks=request["ntasks"],
        cpus_per_task=_cpus_per_task(layout, binder.allocation),
        layout=layout,
        **_unbound(binder, int(str(request["ntasks"]))),
        **_streams(request, config),
        **_of_tasks(request),
        verbose=request.get("verbose", 0),
        kill_on_bad_exit=request.get("kill_on_bad_exit", False),
        time_limit=request.get("time_limit", 0),
        **_patience(config),
        task_prologs=[path for path in (config.task_prolog, request.get("task_prolog")) if path],
        task_epilogs=[
            (path, seconds)
            for path, seconds in ((request.get("task_epilog"), USER_EPILOG_SECONDS), (config.task_epilog, 0.0))
            if path
        ],
        stack=list(stack),
        options=request.get("options", []),
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


def _of_tasks(request: Mapping[str, object]) -> dict[str, object]:
    """What they run beside `argv`, and are told."""
    return {
        "bulk": request.get("bulk", False),
        "programs": request.get("programs", []),
        "kept": _kept(request),
    }


def _kept(request: Mapping[str, object]) -> dict[str, str]:
    """With --preserve-env what the job in which it was typed says of tasks and nodes."""
    if not request.get("preserve_env"):
        return {}
    environment: Mapping[str, str] = request["environment"]  # type: ignore[assignment]  # REQUEST says so
    return {name: environment[name] for name in _PRESERVED if name in environment}


def _streams(request: Mapping[str, object], config: Config) -> dict[str, object]:
    files = {name: request.get(name, "") for name in ("stdin", "stdout", "stderr")}
    flags = {name: request.get(name, False) for name in ("label", "unbuffered", "open_append")}
    pty: Sequence[int] = request.get("pty", ())  # type: ignore[assignment]  # REQUEST says so
    if pty and (len(pty) != _OF_TERMINAL or pty[0] >= int(str(request["ntasks"])) or request.get("bulk")):
        raise invalid("pty", f"{list(pty)!r} is no task of the step with four figures of its terminal's size")
    if pty and config.proctrack_type == _BY_GROUP:
        raise invalid("pty", f"not with {_BY_GROUP}, which does not find what has a terminal and session of its own")
    for name, given in (files | flags).items():
        if pty and given and name not in ("unbuffered", "open_append"):
            raise invalid(name, "it and --pty are mutually exclusive")
    return files | flags | {"pty": list(pty)}


def _container(request: Mapping[str, object], config: Config) -> Mapping[str, object]:
    try:
        return container_settings.of_job(config, request.get("container_ns", ()))  # type: ignore[arg-type]
    except ValueError as error:
        raise invalid("container_ns", str(error)) from None


def _patience(config: Config) -> dict[str, object]:
    """Seconds that the configuration grants, and how tasks are started."""
    return {
        "kill_wait": config.kill_wait,
        "unkillable_timeout": config.unkillable_step_timeout,
        "suspend_grace_time": config.suspend_grace_time,
        "hook_timeout": config.spank_hook_timeout,
        "always_fork": config.always_fork,
    }


def _unbound(binder: Binder, ntasks: int) -> dict[str, object]:
    """A step that no task plugin binds: every task may use all that the job holds. Its limits are set later."""
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
        "mpi": "",
    }


def _layout(request: Mapping[str, object], binder: Binder) -> dict[str, object]:
    """The options of layout and binding in force: given ones, then srun's variables of the step's environment. Raises
    Refused.
    """
    given = {name: request[name] for name in ("ntasks", "cpus_per_task", "cpu_bind") if request.get(name)}
    environment: Mapping[str, str] = request["environment"]  # type: ignore[assignment]  # REQUEST says so
    try:
        layout = gathered({**request.get("layout", {}), **given}, environment)  # type: ignore[dict-item]
        own = "jobid" not in request and "step" not in request
        binder.check(layout, int(str(request["ntasks"])), own=own)
    except NoLayout as error:
        parameter = "cpu_bind" if "cpu_bind" in request and "--cpu-bind" in error.reason else "layout"
        raise Refused("InvalidRequest", error.reason, parameter=parameter) from None
    return layout


def _cpus_per_task(layout: Mapping[str, object], allocation: int) -> int:
    """CPUs for each task; SLURM_CPUS_PER_TASK counts too."""
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
    """MiB of --mem, or of --mem-per-cpu for the CPUs asked for, 0 for none. Limits are set when the step is bound."""
    if "mem" in request and "mem_per_cpu" in request:
        raise invalid("mem", "it and --mem-per-cpu are mutually exclusive")
    cpus = int(str(request["ntasks"])) * int(str(layout.get("cpus_per_task", 1)))
    memory = int(str(request.get("mem", 0))) or int(str(request.get("mem_per_cpu", 0))) * cpus
    check_memory(memory, constraints)
    return {"memory": memory, "oom_kill_step": request.get("oom_kill_step", "OOMKillStep" in config.task_plugin_param)}


def check_memory(memory: int, constraints: Constraints) -> None:
    """Raises Refused for more MiB than there are."""
    if memory > constraints.total:
        raise invalid("mem", f"{memory} MiB are more than the {constraints.total} MiB of this machine")


def _shares(request: Mapping[str, object], constraints: Constraints, *, is_root: bool) -> dict[str, object]:
    try:
        return {"shares": constraints.shares_of(shares.asked(request), is_root=is_root)}
    except shares.BadShare as error:
        raise invalid(error.parameter, str(error)) from None


def _check(request: Mapping[str, object], argv: list[str], config: Config) -> None:
    ntasks = int(str(request["ntasks"]))
    beside = len(lean_json.dumps({name: value for name, value in request.items() if name not in _BOUNDED}))
    if beside > _MOST_BESIDE:
        raise invalid("request", f"{beside} bytes beside program and environment are more than {_MOST_BESIDE}")
    if not argv or not argv[0]:
        raise invalid("argv", "no program given")
    if ntasks > config.max_tasks_per_node:
        raise invalid("ntasks", f"{ntasks} is more than max_tasks_per_node = {config.max_tasks_per_node}")
    if "programs" in request and (wrong := programs.wrong_with(request["programs"], ntasks)):  # type: ignore[arg-type]
        raise invalid("programs", wrong)
    if not str(request["cwd"]).startswith("/"):
        raise invalid("cwd", f"{request['cwd']!r} is not absolute")
    for name in request.get("rlimits", {}):  # type: ignore[attr-defined]
        if name not in RLIMITS:
            raise invalid("rlimits", f"no limit called {name}")
    for option in request.get("options", []):  # type: ignore[attr-defined]
        if len(option) not in (2, 3):
            raise invalid("options", "an option is plugin, name and, where it has one, its argument")
        # Prologs and epilogs have it as a variable, and one that does not begin costs the machine.
        if sum(len(word.encode("utf-8", "surrogateescape")) for word in option) > _LONGEST_OPTION:
            raise invalid("options", f"{option[1][:64]!r}: too long for an environment")
    for key in ("task_prolog", "task_epilog"):
        if not str(request.get(key, "/")).startswith("/"):
            raise invalid(key, f"{request[key]!r} is not absolute")


def _job_control(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of the job's prologs and epilogs, which run as root: every name is SPANK_ and a plain word."""
    variables = {}
    total = 0
    for name, value in given.items():
        if not name.isascii() or not name.replace("_", "a").isalnum():
            raise invalid("job_control", f"{name[:64]!r} is no name of letters, digits and '_'")
        whole = name if name.startswith(_SPANK) else _SPANK + name
        size = len(whole) + len(value.encode("utf-8", "surrogateescape")) + 2
        total += size
        if size > _LONGEST_VARIABLE or total > _MOST_VARIABLES:
            raise invalid("job_control", f"{name[:64]}: too long for an environment")
        variables[whole] = value
    return variables
