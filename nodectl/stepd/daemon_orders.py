"""What the daemon tells a stepd: other limits of its step, and whom the kernel killed in it. Only root is believed."""

from nodectl.wire.dispatch import STEP, Refused
from nodectl.wire.shape import integer, mapping, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.stepd.run import Run
    from nodectl.wire.dispatch import Call

_CONFINE = {"memory": integer(0, 1 << 40), "limits": mapping(text(65_536), most=64)}
_VICTIM = {"task": integer(0, 1 << 20), "pid": integer(1, 1 << 22), "name": text(64)}


class Told:
    """These methods of the step's interface."""

    __slots__ = ("_run",)

    def __init__(self, run: "Run") -> None:
        self._run = run

    def methods(self) -> "Mapping[str, tuple[object, object]]":
        """Rows of the table of methods."""
        return {f"{STEP}.Confine": (_CONFINE, self._confine), f"{STEP}.Victim": (_VICTIM, self._victim)}

    def _confine(self, call: "Call") -> "Mapping[str, object]":
        self._allow(call)
        step = self._run.step
        step.memory, limits = call.parameters["memory"], call.parameters["limits"]
        step.limits.update(limits)
        if self._run.group is not None:
            try:
                self._run.group.child("user").write(limits)
            except OSError:
                pass  # not made yet, or gone: the plugin will write them, or nobody needs them
        return {}

    def _victim(self, call: "Call") -> "Mapping[str, object]":
        self._allow(call)
        if call.parameters["task"] < len(self._run.tasks):
            task = self._run.tasks[call.parameters["task"]]
            self._run.end_reasons.add_victim(task, call.parameters["pid"], call.parameters["name"])
        return {}

    def _allow(self, call: "Call") -> None:
        if call.peer.uid != 0:
            raise Refused(f"{STEP}.NotPermitted", "only the service, which is root, says that")
