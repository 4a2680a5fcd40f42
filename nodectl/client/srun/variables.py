"""The variables for srun's options read by `nodectl run`.

The service reads those of layout and binding (`nodectl/placement/binding/options.py`), because the environment of a
step may differ from that of the command. A given option overrides its variable; a switch is on where its variable is
set, to anything but 0, no and false.
"""

from typing import TYPE_CHECKING

from nodectl.client.command import BadOption
from nodectl.client.run_options import MAYBE_ARGUMENT, NO_ARGUMENT, Parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.client.run_options import RunParser

# In the order of precedence: the first one of an option counts.
OPTIONS = {
    "SRUN_EXPORT_ENV": "export", "SLURM_EXPORT_ENV": "export", "SRUN_INPUT": "input", "SLURM_STDINMODE": "input",
    "SRUN_OUTPUT": "output", "SLURM_STDOUTMODE": "output", "SRUN_ERROR": "error", "SLURM_STDERRMODE": "error",
    "SLURM_REMOTE_CWD": "chdir", "SLURM_WORKING_DIR": "chdir", "SRUN_CONTAINER": "container",
    "SRUN_CONTAINER_ID": "container-id", "SLURM_CONTAINER": "container", "SLURM_CONTAINER_ID": "container-id",
    "SLURM_ACCOUNT": "account", "SLURM_BCAST": "bcast", "SLURM_BCAST_EXCLUDE": "bcast-exclude",
    "SLURM_COMPRESS": "compress", "SLURM_CONSTRAINT": "constraint", "SLURM_CPUS_PER_GPU": "cpus-per-gpu",
    "SLURM_DEPENDENCY": "dependency", "SLURM_DISABLE_STATUS": "disable-status", "SLURM_EPILOG": "epilog",
    "SLURM_IMMEDIATE": "immediate", "SLURM_JOB_NAME": "job-name", "SLURM_KILL_BAD_EXIT": "kill-on-bad-exit",
    "SLURM_LABELIO": "label", "SLURM_MEM_PER_CPU": "mem-per-cpu", "SLURM_MEM_PER_GPU": "mem-per-gpu",
    "SLURM_MEM_PER_NODE": "mem", "SLURM_NTASKS_PER_GPU": "ntasks-per-gpu", "SLURM_NTASKS_PER_TRES": "ntasks-per-tres",
    "SLURM_OOM_KILL_STEP": "oom-kill-step", "SLURM_OPEN_MODE": "open-mode", "SLURM_PROLOG": "prolog",
    "SLURM_QOS": "qos", "SLURM_RESERVATION": "reservation", "SLURM_SEND_LIBS": "send-libs", "SLURM_SIGNAL": "signal",
    "SLURM_TASK_EPILOG": "task-epilog", "SLURM_TASK_PROLOG": "task-prolog", "SLURM_TIMELIMIT": "time",
    "SLURM_TRES_BIND": "tres-bind", "SLURM_TRES_PER_TASK": "tres-per-task", "SLURM_UNBUFFEREDIO": "unbuffered",
    "SLURM_WAIT": "wait", "SLURM_MPI_TYPE": "mpi",
}  # fmt: skip
# Not read as an option: what they say.
OTHERS = {
    "SLURM_DEBUG": "-v, so many times",
    "SLURM_EXIT_ERROR": "exit status where something goes wrong before the step",
    "SLURM_EXIT_IMMEDIATE": "exit status where --immediate finds nothing free",
    "SLURM_HOSTFILE": "where the tasks go, and how many there are",
    "SLURM_SRUN_REDUCE_TASK_EXIT_MSG": "tasks that ended alike are told of once",
    "SLURM_TEST_EXEC": "look whether the program is there before anything is asked for",
    "SLURM_UMASK": "the tasks' umask",
}
# Of options that mean nothing here, of several machines, or of Slurm's own parts.
IGNORED = (
    "PMI_FANOUT PMI_FANOUT_OFF_HOST PMI_TIME SLURMD_DEBUG SLURM_ACCTG_FREQ SLURM_BURST_BUFFER SLURM_CLUSTERS "
    "SLURM_CLUSTER_CONSTRAINT SLURM_CONF SLURM_CONSOLIDATE_SEGMENTS SLURM_CPU_FREQ_REQ SLURM_DEBUG_FLAGS "
    "SLURM_DELAY_BOOT SLURM_GPU_FREQ SLURM_JOB_ID SLURM_JWT SLURM_NETWORK SLURM_NO_KILL SLURM_PARTITION "
    "SLURM_PMI_KVS_NO_DUP_KEYS SLURM_POWER SLURM_PROFILE SLURM_REQ_SWITCH SLURM_RESV_PORTS SLURM_SPREAD_JOB "
    "SLURM_SPREAD_SEGMENTS SLURM_STEPMGR SLURM_STEP_KILLED_MSG_NODE_ID SLURM_THREADS SLURM_TREE_WIDTH "
    "SLURM_WAIT4SWITCH SLURM_WCKEY SRUN_DEBUG SRUN_SEGMENT"
)
_OFF = ("0", "no", "false")
# Of a job's own command: in the job they say what that has. Its steps have names of their own, and its memory.
_OUTSIDE = frozenset({"job-name", "mem", "mem-per-cpu", "mem-per-gpu"})
_OUTSIDE_OF_SLURMS = frozenset({"job-name"})
_EITHER = ({"mem", "mem_per_cpu", "mem_per_gpu"},)  # one of these
_LIKE_OPTIONS = {"SLURM_SRUN_REDUCE_TASK_EXIT_MSG", "SLURM_TEST_EXEC"}  # few have them
_MOST = 10


def fill(parser: "RunParser", parsed: Parsed, variables: "Mapping[str, str]") -> None:
    """Add options given by variables, unless given on the command line. Raises BadOption with the variable's name."""
    found = Parsed()
    in_job = "NODECTL_JOB_ID" in variables
    ignored = _OUTSIDE if in_job else _OUTSIDE_OF_SLURMS if parsed.of_cluster else ()
    for variable, long in OPTIONS.items():
        text = variables.get(variable)
        if text is None or long in ignored:
            continue
        option = parser.find(long)
        if option.dest in parsed.values or option.dest in found.values or not _says(option.has_arg, text):
            continue
        word = f"--{long}" if option.has_arg == NO_ARGUMENT or not text else f"--{long}={text}"
        if option.has_arg != NO_ARGUMENT and not text and option.has_arg != MAYBE_ARGUMENT:
            continue  # an empty variable of an option that needs a value
        try:
            parser.parse_into(found, [word])
        except BadOption as error:
            raise type(error)(f"{variable}: {error}") from None
    for group in _EITHER:
        if group & parsed.values.keys():
            for name in group:
                found.values.pop(name, None)
    if _LIKE_OPTIONS & variables.keys():
        found.values["by_variable"] = True
    if "SLURM_UMASK" in variables and not in_job:
        found.values["umask"] = _umask(variables["SLURM_UMASK"])
    parsed.values = {**found.values, **parsed.values}
    parser.tell_kinds(parsed)
    parsed.verbose = parsed.verbose or _verbosity(variables)


def _umask(text: str) -> int:
    if not text or text.strip("01234567") or int(text, 8) > 0o777:
        raise BadOption(f"SLURM_UMASK: {text[:20]!r} is no umask, as 0022")
    return int(text, 8)


def _says(has_arg: int, text: str) -> bool:
    return has_arg != NO_ARGUMENT or text.lower() not in _OFF


def _verbosity(variables: "Mapping[str, str]") -> int:
    """Return the value of SLURM_DEBUG. SRUN_DEBUG states the verbosity of an outer srun, and asks for nothing."""
    text = variables.get("SLURM_DEBUG", "")
    return min(int(text[:4]), _MOST) if text.isascii() and text.isdecimal() else 0
