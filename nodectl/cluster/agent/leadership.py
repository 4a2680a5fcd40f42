"""The leadership as seen by an agent: the agent as root with the leader beside it, or the search after a lost root."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nodectl.cluster.agent.leader_process import LeaderProcess
from nodectl.cluster.agent.place import Place
from nodectl.cluster.agent.succession import Succession
from nodectl.cluster.mesh.mesh import Mesh
from nodectl.cluster.succession.directory import Epoch, JobDirectory


class Leadership:
    """The leadership of the agent at `place` with the directory `path`. `say` logs a line; `give_up` ends the agent."""

    def __init__(
        self, mesh: Mesh, secret: bytes, place: Place, path: str, say: Callable[[str], None],
        give_up: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._mesh = mesh
        self._secret = secret
        self._place = place
        self._path = path
        self._say = say
        self._give_up = give_up
        self._directory = JobDirectory.of(place.job, secret)
        self._leader: LeaderProcess | None = None
        self._succession: Succession | None = None
        self.why_not = ""  # the reason why no agent can replace the root; "" if one can

    def begin(self, at: Sequence[tuple[str, int]]) -> None:
        """Begin the first epoch, as the agent of rank 0, listening at the addresses `at`."""
        epoch = Epoch(0, self._place.rank, tuple(at))
        try:
            self._directory.make(epoch.at)
        except OSError as error:
            self.why_not = f"{error.filename or self._directory.path}: {error.strerror}"
            self._say(f"{self.why_not}: if {self._place.name} is lost, the others end")
        self._lead(epoch)

    def follow(self) -> None:
        """Follow the root, as any joined agent but rank 0."""
        first = self._place.names[0]
        if self._directory.is_there:
            self._succession = Succession(
                self._mesh, self._directory, self._lead, self._give_up, is_guest=self._place.is_guest
            )
        else:
            self.why_not = f"{self._place.name} does not share {self._directory.path} with {first}"
            self._say(f"{self.why_not}: it ends if {first} is lost")

    def _lead(self, epoch: Epoch) -> None:
        self._mesh.succeed(epoch.number, epoch.rank, epoch.at)
        if epoch.number:
            self._say(f"it leads the others from now on, in epoch {epoch.number}")
        memory = {"journal": f"{self._path}/journal", "directory": "" if self.why_not else self._directory.path}
        self._leader = LeaderProcess(
            self._secret, epoch, self._place, memory, self._say, lambda: self._mesh.has_leader,
            lambda: self._give_up("the others follow another leader"),
        )  # fmt: skip
        self._leader.start()

    async def stop(self) -> None:
        """Stop looking for a root, since the agent is about to end."""
        if self._succession is not None:
            await self._succession.end()

    async def end(self, *, is_last: bool) -> None:
        """End the leader; with the last agent, remove the job's directory."""
        if self._leader is not None:
            await self._leader.end()
            if is_last:
                self._directory.remove()
