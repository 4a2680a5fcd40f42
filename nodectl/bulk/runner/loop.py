"""`run_commands`: the loop of a bulk step, from the first command to the last. Runs in the stepd, as root."""

from nodectl.bulk.runner.lanes import Lanes
from nodectl.bulk.runner.task import Starter
from nodectl.bulk.runner.work import Bulk
from nodectl.launch.stepd.run import LaunchFailed
from nodectl.model import launch_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.launch.stepd.reaper import Reaper
    from nodectl.launch.stepd.run import Run

_AT_ONCE = 8  # tasks that are started before ends are looked for


def run_commands(run: "Run", reaper: "Reaper") -> None:
    """Run the commands, from the first command to the end of the last. Raises LaunchFailed."""
    run.bulk = bulk = Bulk(run, reaper)
    try:
        starter = Starter(run, reaper)
    except OSError as error:
        raise run.failed(f"begin: {error.strerror}") from error
    lanes = Lanes(bulk, starter, run, reaper)
    run.links.tell_launcher({"event": "start", "pids": [], "slots": len(bulk.sums), **bulk.window.facts()})
    failure = None
    try:
        while bulk.goes_on():
            failure = _turn(run, bulk, lanes, starter, reaper) or failure
    finally:
        lanes.stop()
    bulk.withdraw()
    bulk.tell()
    run.tasks[:] = bulk.sums
    run.recorder.fd = run.trace
    if failure is not None:
        raise failure


def _turn(run: "Run", bulk: Bulk, lanes: Lanes, starter: Starter, reaper: "Reaper") -> LaunchFailed | None:
    """Begin commands, and serve what comes meanwhile. Returns the failure of the step, if any."""
    failure = None
    try:
        if lanes.serve():
            bulk.tell()
            if lanes.is_called:
                reaper.turn(0)
                bulk.act()
            return None
        _fill(bulk, starter)
    except LaunchFailed as error:
        failure = error
        reaper.termination.stop()
    bulk.tell()
    run.waits_for(launch_order.EXEC)
    reaper.turn(0 if bulk.may_begin() else bulk.patience())
    bulk.act()
    return failure


def _fill(bulk: Bulk, starter: Starter) -> None:
    for _ in range(_AT_ONCE):
        if not bulk.may_begin():
            return
        bulk.begin(starter)
