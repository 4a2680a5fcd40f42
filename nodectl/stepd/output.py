"""The end of a step's output: its tasks have ended, and its pumps still write what there was. In the stepd."""

import time

from nodectl.stepd.termination import OUTPUT_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.stepd.reaper import Reaper
    from nodectl.stepd.run import Run


def wait(run: "Run", reaper: "Reaper", pid: int, *, awaited: bool) -> None:
    """Until an output pump has written what there was; an input pump is ended. As long as the client is there, and not
    longer: it may be a pager. A step that was ended early does not wait for a reader beyond kill_wait, and one that is
    told to end now is cancelled then.
    """
    if not awaited:
        run.pumps.end(pid)
    limit = None
    if run.state != "RUNNING":
        limit = time.monotonic() + run.step.kill_wait
    elif not run.links.has_launcher():
        limit = time.monotonic() + OUTPUT_LIMIT
    while pid not in reaper.gone:
        now = time.monotonic()
        late = reaper.termination.late
        if awaited and late is not None and now > late[1]:
            run.end_as("CANCELLED", late[0])
            limit = now
        if limit is not None and now >= limit:
            run.pumps.end(pid)
        reaper.turn(1.0)
