"""The launch request of `nodectl run`: the options, and the state of the shell. Lean."""

import _stat as stat
import posix as os  # the half in C: the other one is a millisecond of each step
import sys

from nodectl.client.command import BadOption, environ, is_same_file
from nodectl.client.run_options import Parsed
from nodectl.model.number import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RLIMITS = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS")
# Options that tasks find in their environment, where they are given.
_TOLD = {
    "cpus_per_task": "SLURM_CPUS_PER_TASK",
    "mem": "SLURM_MEM_PER_NODE",
    "mem_per_cpu": "SLURM_MEM_PER_CPU",
}
# Options of a job which tasks find in their environment, where given.
TOLD = {"qos": "SLURM_JOB_QOS", "reservation": "SLURM_JOB_RESERVATION", "dependency": "SLURM_JOB_DEPENDENCY"}
_MOST_TASKS = 999_999
_NODES = ("nodelist", "exclude")  # a word with a slash in it is a file that has them
_LONGEST_FILE = 1 << 17  # more than the service takes


def make_request(parsed: Parsed, surroundings: "Mapping[str, str] | None" = None) -> dict[str, object]:
    """Return the request to the service, without the environment: options, umask, limits, working directory.

    The directory is the path as the user sees it. `surroundings`: the variables in which options are looked up.
    """
    variables = environ() if surroundings is None else surroundings
    values = dict(parsed.values)
    values.pop("trace", None)
    values.pop("export", None)
    mask = os.umask(0)
    os.umask(mask)
    here, wanted = _here(), str(values.pop("cwd", ""))
    layout = {name: str(values.pop(name)) for name in parsed.layout if name in values}
    if "SLURM_HOSTFILE" in variables and "nodelist" not in layout:
        layout.setdefault("distribution", variables.get("SLURM_DISTRIBUTION", "arbitrary"))
        if layout["distribution"].startswith("arbitrary"):
            layout["hostfile"] = _host_file(variables["SLURM_HOSTFILE"])
    for name in _NODES:
        if "/" in layout.get(name, ""):
            from nodectl.client.srun.manners import nodes_of  # few name a file

            layout[name] = nodes_of(layout[name])
    request: dict[str, object] = {
        "argv": parsed.argv,
        "cwd": _within(here, wanted) if wanted else here,
        "ntasks": values.pop("ntasks", 0) or _ntasks(layout, variables, int(str(values.get("cpus_per_task", 0)))),
        "umask": mask,
        "rlimits": _rlimits(_propagated(str(values.pop("propagate", "")))),
        "verbose": min(parsed.verbose, 10),
    }
    if not values.get("time_limit"):
        values.pop("time_limit", None)
    for script in ("task_prolog", "task_epilog"):
        if script in values:
            values[script] = _within(here, str(values[script]))
    request.update(values)
    if "stdin" not in request and request["ntasks"] != 1 and _reads_nothing():
        request["stdin"] = "none"  # else a process would have to copy an empty stream to all tasks
    if layout:
        request["layout"] = layout
        if "hint" in layout:
            from nodectl.client.srun import hint  # few steps have one

            hint.tell_conflict({**values, **layout})
    look_for_mpi(request)
    return request


def look_for_mpi(request: "dict[str, object]") -> None:
    """Add the MPI plugin to a request with several tasks.

    Called when the number of tasks is known, and again if the number grows.
    """
    if request["ntasks"] != 1 and request["argv"]:
        from nodectl.client import mpi_program  # one task needs no other

        mpi_program.look(request)


def _within(here: str, path: str) -> str:
    from os.path import join  # only where a path was given

    return join(here, path)


def _reads_nothing() -> bool:
    """Return True where standard input is /dev/null, null(4)."""
    status = os.fstat(0)
    return stat.S_ISCHR(status.st_mode) and (os.major(status.st_rdev), os.minor(status.st_rdev)) == (1, 3)


def _ntasks(layout: "Mapping[str, str]", environment: "Mapping[str, str]", cpus_per_task: int = 0) -> int:
    """Return the number of tasks where -n is missing.

    The sources are srun's variables, --ntasks-per-node on this node, the lines of a host file, the CPUs of -B, as many
    tasks with these CPUs each as fit into the job, or 1.
    """
    of_node = layout.get("ntasks_per_node") or environment.get("SLURM_NTASKS_PER_NODE")
    for text in (environment.get("SLURM_NTASKS"), environment.get("SLURM_NPROCS"), of_node):
        if text and (ntasks := whole(text, _MOST_TASKS)):
            return ntasks
    if "extra_node_info" in layout and not layout.get("hostfile"):
        return _of_geometry(layout["extra_node_info"]) // (cpus_per_task or 1) or 1
    of_job = environment.get("SLURM_JOB_CPUS_PER_NODE", "") if cpus_per_task and "NODECTL_JOB_ID" in environment else ""
    fitting = (whole(of_job, _MOST_TASKS) or 0) // (cpus_per_task or 1)
    return len(layout.get("hostfile", "").replace(",", " ").split()) or fitting or 1


def _of_geometry(text: str) -> int:
    """Return the number of CPUs of -B. The service refuses senseless values."""
    cpus = 1
    for level in text.split(":"):
        cpus *= whole(level.partition("-")[0], _MOST_TASKS) or 1
    return min(cpus, _MOST_TASKS)


def _host_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_LONGEST_FILE)
    except OSError as error:
        raise BadOption(f"SLURM_HOSTFILE {path!r}: {error.strerror}") from None


def job_environment(parsed: Parsed, own: "Mapping[str, str] | None" = None) -> dict[str, str]:
    """Return the tasks' environment by --export, after local hooks have changed this process's; or from `own`."""
    own = parsed.environment if own is None else own
    environment = exported(str(parsed.values.get("export", "ALL")), own_environment() if own is None else own)
    environment.update(SLURM_SUBMIT_DIR=_here(), SLURM_SUBMIT_HOST=os.uname().nodename)
    for dest, name in _TOLD.items():
        if dest in parsed.values:
            environment[name] = str(parsed.values[dest])
    environment.update(parsed.told)
    return environment


def exported(choice: str, environment: "Mapping[str, str]") -> dict[str, str]:
    """Return the variables of `environment` chosen by --export: ALL, NONE, or a list.

    SLURM_* and SPANK_* always go along.
    """
    words = _words(choice)
    always = {name: value for name, value in environment.items() if name.startswith(("SLURM_", "SPANK_"))}
    if takes_all(choice):
        chosen = dict(environment)
    else:
        named = [] if choice.upper() in ("NONE", "NIL") else words
        chosen = {word: environment[word] for word in named if word in environment} | always
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name:
            chosen[name] = value
    return chosen


def takes_all(choice: str) -> bool:
    """Return True where --export takes the whole environment, and perhaps more."""
    return any(word.upper() == "ALL" for word in _words(choice))


def _words(choice: str) -> list[str]:
    """Split at commas; a value in quotes may hold commas."""
    words = []
    letters: list[str] = []
    quote = ""
    for letter in choice:
        if quote:
            if letter == quote:
                quote = ""
            else:
                letters.append(letter)
        elif letter in "'\"":
            quote = letter
        elif letter == ",":
            words.append("".join(letters))
            letters.clear()
        else:
            letters.append(letter)
    return [*words, "".join(letters)]


def own_environment() -> dict[str, str]:
    """Return this process's environment. setenv(3) of a native plugin is included, which Python does not see."""
    host = sys.modules.get("nodectl.spank._spank_host")
    return dict(environ()) if host is None else host.environ()


def _here() -> str:
    """Return the working directory, as PWD where PWD still names the directory."""
    named = environ().get("PWD", "")
    try:
        actual = os.getcwd()
    except OSError:
        return named or "/"  # gone, or not readable: the task will say so
    try:
        return named if named.startswith("/") and is_same_file(named, actual) else actual
    except OSError:
        return actual  # PWD is another user's, as after su(1)


def _propagated(text: str) -> "Sequence[str]":
    """Return the resource limits named by --propagate. Raises BadOption."""
    if text.upper() in ("", "ALL"):
        return RLIMITS
    names = () if text.upper() == "NONE" else [word.upper().removeprefix("RLIMIT_") for word in text.split(",")]
    if unknown := [name for name in names if name not in RLIMITS]:
        raise BadOption(f"--propagate: no limit {unknown[0][:20]!r}, there are ALL, NONE, {', '.join(RLIMITS)}")
    return names


def _rlimits(names: "Sequence[str]") -> dict[str, int]:
    """Return the soft limits by name, -1 for no limit."""
    import resource  # next to where it is used; a C module, cheap

    limits = {}
    for name in names:
        soft = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        limits[name] = -1 if soft == resource.RLIM_INFINITY else soft
    return limits
