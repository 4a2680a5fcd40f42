"""The input variables of srun(1), 22.05 and 25.11: each is its option, or means nothing here."""

from __future__ import annotations

import pytest

from nodectl.client.command import BadOption
from nodectl.client.run_options import Parsed
from nodectl.client.srun import variables
from nodectl.client.srun.manners import of
from nodectl.client.srun.options import parser
from nodectl.placement.binding import options as layout

SRUN = (
    "PMI_FANOUT PMI_FANOUT_OFF_HOST PMI_TIME SLURM_ACCOUNT SLURM_ACCTG_FREQ SLURM_BCAST SLURM_BCAST_EXCLUDE "
    "SLURM_BURST_BUFFER SLURM_CLUSTERS SLURM_CLUSTER_CONSTRAINT SLURM_COMPRESS SLURM_CONF SLURM_CONSOLIDATE_SEGMENTS "
    "SLURM_CONSTRAINT SLURM_CORE_SPEC SLURM_CPUS_PER_GPU SLURM_CPU_BIND SLURM_CPU_FREQ_REQ SLURM_DEBUG "
    "SLURM_DEBUG_FLAGS SLURM_DELAY_BOOT SLURM_DEPENDENCY SLURM_DISABLE_STATUS SLURM_DISTRIBUTION SLURM_EPILOG "
    "SLURM_EXACT SLURM_EXCLUSIVE SLURM_EXIT_ERROR SLURM_EXIT_IMMEDIATE SLURM_EXPORT_ENV SLURM_GPUS "
    "SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_GPU_BIND SLURM_GPU_FREQ SLURM_GRES SLURM_GRES_FLAGS SLURM_HINT "
    "SLURM_HOSTFILE SLURM_IMMEDIATE SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NUM_NODES SLURM_KILL_BAD_EXIT SLURM_LABELIO "
    "SLURM_MEM_BIND SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE SLURM_MPI_TYPE SLURM_NETWORK SLURM_NNODES "
    "SLURM_NO_KILL SLURM_NPROCS SLURM_NTASKS SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_NODE "
    "SLURM_NTASKS_PER_SOCKET SLURM_NTASKS_PER_TRES SLURM_OOM_KILL_STEP SLURM_OPEN_MODE SLURM_OVERCOMMIT SLURM_OVERLAP "
    "SLURM_PARTITION SLURM_PMI_KVS_NO_DUP_KEYS SLURM_POWER SLURM_PROFILE SLURM_PROLOG SLURM_QOS SLURM_REMOTE_CWD "
    "SLURM_REQ_SWITCH SLURM_RESERVATION SLURM_RESV_PORTS SLURM_SEND_LIBS SLURM_SIGNAL SLURM_SPREAD_JOB "
    "SLURM_SPREAD_SEGMENTS SLURM_SRUN_REDUCE_TASK_EXIT_MSG SLURM_STDERRMODE SLURM_STDINMODE SLURM_STDOUTMODE "
    "SLURM_STEPMGR SLURM_STEP_GRES SLURM_STEP_KILLED_MSG_NODE_ID SLURM_TASK_EPILOG SLURM_TASK_PROLOG SLURM_TEST_EXEC "
    "SLURM_THREADS SLURM_THREADS_PER_CORE SLURM_THREAD_SPEC SLURM_TIMELIMIT SLURM_TRES_BIND SLURM_TRES_PER_TASK "
    "SLURM_UMASK SLURM_UNBUFFEREDIO SLURM_USE_MIN_NODES SLURM_WAIT SLURM_WAIT4SWITCH SLURM_WCKEY SLURM_WORKING_DIR "
    "SLURMD_DEBUG SRUN_CONTAINER SRUN_CONTAINER_ID SRUN_CPUS_PER_TASK SRUN_DEBUG SRUN_ERROR SRUN_EXPORT_ENV "
    "SRUN_INPUT SRUN_OUTPUT SRUN_SEGMENT"
)
TEXTS = {
    "account": "x", "bcast": "f", "bcast-exclude": "x", "chdir": "/", "compress": "lz4", "constraint": "x",
    "cpus-per-gpu": "1", "dependency": "singleton", "epilog": "/x", "error": "x", "export": "NONE", "immediate": "1",
    "input": "none", "job-name": "x", "kill-on-bad-exit": "1", "mem": "5", "mem-per-cpu": "5", "mem-per-gpu": "5",
    "mpi": "pmi2",
    "ntasks-per-gpu": "1", "ntasks-per-tres": "1", "oom-kill-step": "1", "open-mode": "append", "output": "x",
    "prolog": "/x", "qos": "x", "reservation": "x", "send-libs": "yes", "signal": "USR1", "task-epilog": "/x",
    "task-prolog": "/x", "time": "1", "tres-bind": "gres/gpu:closest", "tres-per-task": "cpu:1", "wait": "1",
}  # fmt: skip


def filled(environment: dict[str, str], *words: str) -> Parsed:
    read = parser()
    parsed = read.parse([*words, "program"])
    variables.fill(read, parsed, environment)
    return parsed


def test_each_variable_has_its_place() -> None:
    known = {*variables.OPTIONS, *variables.OTHERS, *variables.IGNORED.split(), *layout.VARIABLES}
    assert set(SRUN.split()) - known == set()


@pytest.mark.parametrize("variable", sorted(set(variables.OPTIONS)))
def test_a_variable_is_its_option_and_the_option_goes_before_it(variable: str) -> None:
    long = variables.OPTIONS[variable]
    if long.startswith("container"):
        with pytest.raises(BadOption, match=f"{variable}: --{long}: "):
            filled({variable: "x"})
        return
    text = TEXTS.get(long, "")
    words = [f"--{long}={text}"] if text else [f"--{long}"]
    said = parser().parse([*words, "program"])
    found = filled({variable: text})
    assert found.values == said.values
    assert (found.argv, found.layout, found.job) == (said.argv, said.layout, said.job)
    assert filled({variable: "nonsense or not"}, *words).values == said.values


@pytest.mark.parametrize(("text", "on"), [("", True), ("1", True), ("yes", True), ("0", False), ("no", False)])
def test_a_switch_that_is_set_is_on(text: str, on: bool) -> None:
    assert ("label" in filled({"SLURM_LABELIO": text}).values) == on
    assert bool(layout.gathered({}, {"SLURM_OVERCOMMIT": text}).get("overcommit")) == on


@pytest.mark.parametrize("variable", sorted(variables.IGNORED.split()))
def test_what_means_nothing_here_is_ignored(variable: str) -> None:
    assert filled({variable: "x"}).values == {}


def test_of_two_ways_to_ask_for_memory_the_typed_one_counts() -> None:
    assert filled({"SLURM_MEM_PER_NODE": "100"}, "--mem-per-cpu=5").values == {"mem_per_cpu": 5}


def test_a_job_in_which_it_is_typed_gives_a_step_neither_name_nor_umask_nor_all_its_memory_for_each_cpu() -> None:
    outside = {"SLURM_JOB_NAME": "outer", "SLURM_UMASK": "0077", "SLURM_MEM_PER_CPU": "5"}
    assert filled(outside).values == {"name": "outer", "umask": 0o077, "mem_per_cpu": 5}
    assert filled({**outside, "NODECTL_JOB_ID": "5"}).values == {}


def test_a_step_in_an_allocation_of_slurms_is_not_called_as_its_job_is() -> None:
    read = parser()
    parsed = read.parse(["program"])
    parsed.of_cluster = True
    variables.fill(read, parsed, {"SLURM_JOB_NAME": "script.sh", "SLURM_MEM_PER_CPU": "5"})
    assert parsed.values == {"mem_per_cpu": 5}


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({"SLURM_WAIT": "soon"}, "SLURM_WAIT: "), ({"SLURM_UMASK": "9"}, "SLURM_UMASK: '9' is no umask")],
)
def test_a_wrong_variable_is_named(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        filled(environment)


def test_variables_choose_how_much_is_said() -> None:
    assert filled({"SLURM_DEBUG": "2"}).verbose == 2
    assert filled({"SRUN_DEBUG": "3"}).verbose == 0  # what an outer srun has told its tasks
    assert filled({"SLURM_DEBUG": "2"}, "-v").verbose == 1
    parsed = filled({"SLURM_SRUN_REDUCE_TASK_EXIT_MSG": "1"})
    assert of(parsed, {"SLURM_SRUN_REDUCE_TASK_EXIT_MSG": "1"}).reduced
    assert parsed.values == {}
