"""The engine for Slurm: the nodes of the present allocation, with a single srun for all agents.

The step of the agents overlaps all other steps, and holds no CPU, memory or device for itself alone; srun keeps it
running whatever becomes of single nodes. It has the job's devices, since programs below it must use them.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence

from nodectl.cluster.agent.place import KILL_WAIT
from nodectl.cluster.engine.engine import Agents, Nodes, NoEngine, begin
from nodectl.placement.binding import hostlist
from nodectl.placement.binding.no_layout import NoLayout

_STEP = "nodectl-"  # the beginning of the agents' step name, by which the step is found again
_OURS = b"nodectl.slurm.commands"  # in a file that `nodectl slurm-commands` has written
_READ = 4096
_AGENTS_SECONDS = 15.0  # for agents to end
_LOOK_AGAIN = 0.3
_SECONDS = 30.0  # for an answer of the controller
# The allocation's own choices are for its programs. These variables are options of srun to itself.
_OPTIONS_OF_SRUN = (
    "ACCTG_FREQ", "CORE_SPEC", "CPUS_PER_GPU", "CPUS_PER_TASK", "CPU_BIND", "CPU_BIND_LIST", "CPU_BIND_TYPE",
    "CPU_BIND_VERBOSE", "CPU_FREQ_REQ", "DEPENDENCY", "DISABLE_STATUS", "DISTRIBUTION", "EPILOG", "EXACT", "EXCLUSIVE",
    "EXPORT_ENV", "GPUS", "GPUS_PER_NODE", "GPUS_PER_SOCKET", "GPUS_PER_TASK", "GPU_BIND", "GRES", "GRES_FLAGS", "HINT",
    "HOSTFILE", "IMMEDIATE", "KILL_BAD_EXIT", "LABELIO", "MEM_BIND", "MEM_BIND_LIST", "MEM_BIND_TYPE",
    "MEM_BIND_VERBOSE", "MEM_PER_CPU", "MEM_PER_GPU", "MEM_PER_NODE", "MPI_TYPE", "MULTI_PROG", "NCORES_PER_SOCKET",
    "NNODES", "NODELIST", "NPROCS", "NTASKS", "NTASKS_PER_CORE", "NTASKS_PER_GPU", "NTASKS_PER_NODE",
    "NTASKS_PER_SOCKET", "OPEN_MODE", "OVERCOMMIT", "OVERLAP", "PROLOG", "REMOTE_CWD", "RESV_PORTS", "SPREAD_JOB",
    "STDERRMODE", "STDINMODE", "STDOUTMODE", "STEP_GRES", "TASK_EPILOG", "TASK_PROLOG", "THREADS", "THREADS_PER_CORE",
    "THREAD_SPEC", "TIMELIMIT", "TRES_BIND", "TRES_PER_TASK", "UNBUFFEREDIO", "WAIT", "WCKEY", "WHOLE", "WORKING_DIR",
)  # fmt: skip
# In a job with these variables, a step without an option gets fewer GPUs (22.05): per task, each agent gets one
# task's.
_GPUS_COUNTED = ("SLURM_GPUS", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET")
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*(\d+) sec$", re.MULTILINE)
_GPUS_OF_NODE = re.compile(r"\b(gpu(?::[^:,()=]+)?):(\d+)\(")
_OPTIONS = (
    "--overlap", "--ntasks-per-node=1", "--cpu-bind=none", "--mem-bind=none", "--mem=0", "--export=ALL", "--mpi=none",
    "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--input=all", "--output=all", "--error=all",
    "--quiet",
)  # fmt: skip


class Slurm:
    """The engine for an allocation of Slurm.

    `environment`: of a process in the allocation. An engine that has started agents ends only these: the agents of
    another cluster of the job may have to stay.
    """

    name = "slurm"
    kills = True  # srun leaves a process behind that kills the step

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._step = _STEP

    def nodes(self) -> Nodes:
        """Return the nodes of the allocation. Raises NoEngine."""
        job = self._environment.get("SLURM_JOB_ID", "")
        listed = self._environment.get("SLURM_JOB_NODELIST", "")
        if not job.isdecimal() or not listed:
            raise NoEngine("this is not inside an allocation of Slurm -> salloc, sbatch, or name hosts with -w")
        try:
            return Nodes(int(job), hostlist.expand(listed, hostlist.MAX_NODES))
        except NoLayout as refused:
            raise NoEngine(f"SLURM_JOB_NODELIST: {refused}") from None

    def start(self, nodes: Nodes, words: Sequence[str]) -> list[Agents]:
        """Start an srun for all agents. Raises NoEngine."""
        count = len(nodes.names)
        self._step = f"{_STEP}{secrets.token_hex(4)}"
        named = [f"--jobid={nodes.job}", f"--job-name={self._step}", f"--nodes={count}", f"--ntasks={count}"]
        line = [self._program("srun"), *named, *_OPTIONS, *self._gpus(nodes.job), *words]
        taken = {f"{prefix}_{name}" for prefix in ("SLURM", "SRUN") for name in _OPTIONS_OF_SRUN}
        environment = {name: value for name, value in self._environment.items() if name not in taken}
        for name in ("MEM_PER_NODE", "MEM_PER_CPU"):  # the job's limit for agents: see nodectl/cluster/machine.py
            if value := self._environment.get(f"SLURM_{name}"):
                environment[f"NODECTL_{name}"] = value
        if told := _KILL_WAIT.search(self._ask("scontrol", "show", "config")):
            environment[KILL_WAIT] = told[1]
        return [begin(line, {**environment, **nodes.environment()}, range(count))]

    def _gpus(self, job: int) -> list[str]:
        """Return the option for all GPUs of the job, where Slurm would give fewer: the least count of any node."""
        if not any(name in self._environment for name in _GPUS_COUNTED):
            return []
        lines = self._ask("scontrol", "--details", "show", "job", str(job)).splitlines()
        nodes = [dict(_GPUS_OF_NODE.findall(line)) for line in lines if line.lstrip().startswith("Nodes=")]
        kinds = {kind for node in nodes for kind in node}
        least = {kind: min(int(node.get(kind, 0)) for node in nodes) for kind in sorted(kinds)}
        words = [f"{kind}:{count}" for kind, count in least.items() if count]
        return [f"--gres={','.join(words)}"] if words else []

    def cancel(self, nodes: Nodes) -> None:
        """End the step by Slurm, on all nodes still answering. SIGTERM comes first, so agents can clean up."""
        steps = {*self._steps(nodes.job)}  # the sweepers come later, and end by themselves
        for signal in ("TERM", "KILL"):
            if not steps:
                return
            self._ask("scancel", f"--signal={signal}", *steps)
            until = time.monotonic() + _AGENTS_SECONDS
            while (steps := steps & {*self._steps(nodes.job)}) and time.monotonic() < until:
                time.sleep(_LOOK_AGAIN)

    def runs(self, nodes: Nodes) -> bool:
        """Return whether Slurm has a step of agents."""
        return bool(self._steps(nodes.job))

    def states(self, nodes: Nodes) -> Mapping[str, str]:
        """Return the nodes down or failing, with Slurm's word for the state."""
        told = self._ask("sinfo", "--noheader", "-N", f"--nodes={','.join(nodes.names)}", "-o", "%N %T")
        pairs = (line.split(maxsplit=1) for line in told.splitlines())
        return {name: state for name, state in pairs if state.startswith(("down", "fail", "unknown")) or "*" in state}

    def why(self, name: str, said: str) -> str:
        """Return the message unchanged: Slurm gives the reason."""
        return said

    def _steps(self, job: int) -> list[str]:
        told = self._ask("squeue", "--steps", "--noheader", f"--jobs={job}", "-o", "%i %j")
        pairs = (line.partition(" ") for line in told.splitlines())
        return [step for step, _, name in pairs if name.strip().startswith(self._step)]

    def _program(self, name: str) -> str:
        """Return the path of Slurm's program, skipping a command of nodectl with the same name in PATH. Raises
        NoEngine.
        """
        for directory in os.get_exec_path(self._environment):
            path = os.path.join(directory, name)
            try:
                with open(path, "rb") as file:
                    is_slurms = _OURS not in file.read(_READ)
            except OSError:
                continue
            if is_slurms and os.access(path, os.X_OK):
                return path
        raise NoEngine(f"there is no {name} of Slurm's in PATH")

    def _ask(self, name: str, *words: str) -> str:
        """Return the output of a Slurm command; "" without an answer."""
        try:
            return subprocess.run(
                [self._program(name), *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                timeout=_SECONDS, check=False, env=self._environment,
            ).stdout  # fmt: skip
        except (NoEngine, OSError, subprocess.TimeoutExpired):
            return ""
