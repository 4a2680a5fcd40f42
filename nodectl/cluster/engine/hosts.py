"""The engine for a plain list of hosts, with an ssh for each: for tests, and for users without a scheduler.

Without a scheduler, the hosts may have other users, and there is no time limit.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence

from nodectl.cluster.agent.place import AGENT
from nodectl.cluster.engine.engine import Agents, Nodes, NoEngine, begin
from nodectl.kernel import signals
from nodectl.placement.binding import hostlist
from nodectl.placement.binding.no_layout import NoLayout

# A separate connection, whatever the user's configuration says for shells, and no questions to the user. `-T`: a
# terminal would change the agents' input and output.
_OPTIONS = {
    "BatchMode": "yes", "ConnectTimeout": "10", "ServerAliveInterval": "5", "ServerAliveCountMax": "3",
    "ControlMaster": "no", "ControlPath": "none", "ClearAllForwardings": "yes", "ForwardAgent": "no",
    "ForwardX11": "no", "RemoteCommand": "none", "LogLevel": "INFO",
}  # fmt: skip
PROGRAM = " ".join(["ssh -T", *(f"-o {name}={value}" for name, value in _OPTIONS.items())])
_REFUSALS = ("Permission denied (", "Host key verification failed", "Too many authentication failures")
_FIRST_JOB, _JOBS = 1 << 30, 1 << 30  # never given by Slurm's controller


class Hosts:
    """A list of hosts.

    `listed`: names as Slurm writes them. `program`: words for a shell, followed by a host and a command.
    """

    name = "hosts"
    kills = False

    def __init__(self, listed: str, program: str, environment: Mapping[str, str]) -> None:
        self._listed = listed
        self._program = program
        self._environment = environment
        self._running: list[Agents] = []

    def nodes(self) -> Nodes:
        """Return the listed hosts, under a random job number. Raises NoEngine."""
        try:
            names = hostlist.expand(self._listed, hostlist.MAX_NODES)
        except NoLayout as refused:
            raise NoEngine(str(refused)) from None
        if not names or len({*names}) < len(names) or any(name.startswith("-") for name in names):
            raise NoEngine(f"-w {self._listed[:200]}: names of hosts are wanted, each once")
        return Nodes(_FIRST_JOB + secrets.randbelow(_JOBS), names)

    def start(self, nodes: Nodes, words: Sequence[str]) -> list[Agents]:
        """Start a process for each host. Raises NoEngine."""
        try:
            program = shlex.split(self._program)
        except ValueError as error:
            raise NoEngine(f"NODECTL_SSH: {self._program}: {error}") from None
        for rank, name in enumerate(nodes.names):
            line = [*program, name, f"exec env {_agent(nodes, rank)} {shlex.join(words)}"]
            try:
                self._running.append(begin(line, self._environment, (rank,)))
            except NoEngine:
                self.cancel(nodes)
                raise
        return self._running

    def cancel(self, nodes: Nodes) -> None:
        """End the connections; agents end at the end of their stdin."""
        for agents in self._running:
            if agents.process.returncode is None:
                signals.send_child(agents.process.pid, signals.TERM)

    def states(self, nodes: Nodes) -> Mapping[str, str]:
        """Return an empty mapping: the states of hosts are unknown."""
        return {}

    def why(self, name: str, said: str) -> str:
        """Return the message; where ssh had a question, add the ssh command which must work without a question."""
        if not any(word in said for word in _REFUSALS):
            return said
        return f"{said.rstrip('.')} -> `ssh -o BatchMode=yes {name} true` has to do it without a question"

    def runs(self, nodes: Nodes) -> bool:
        """Return False: only the holder knows."""
        return False


def _agent(nodes: Nodes, rank: int) -> str:
    """Return the agent's variables, which Slurm would set, as words for the shell there."""
    variables = {AGENT: nodes.variable(rank), **nodes.environment()}
    return shlex.join(f"{name}={value}" for name, value in variables.items())
