"""The kinds of steps that features add: for now the steps of `nodectl bulk`.

Imported by the forkserver, which imports the modules of these kinds with it, because a stepd imports nothing.
"""

from nodectl.model import features

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.launch.stepd.reaper import Reaper
    from nodectl.launch.stepd.run import Run

_BULK = features.kind_of_step("bulk")


def run_commands(run: "Run", reaper: "Reaper") -> None:
    """Run a bulk step, from the first command to the end of the last. Raises StepFailed."""
    if _BULK is None:
        raise run.failed(features.is_missing("bulk"))
    _BULK.run_commands(run, reaper)
