"""The parts of the daemon used by the queue. A single object, made once."""

from typing import NamedTuple

from nodectl.service.daemon.admission.growth import Growth
from nodectl.service.daemon.admission.step_maker import StepMaker
from nodectl.service.daemon.controller.spool import Spool
from nodectl.service.daemon.controller.starts import Starts
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.jobs.suspension import Suspension


class Parts(NamedTuple):
    """See the module."""

    registry: Registry
    further_steps: FurtherSteps
    suspension: Suspension
    maker: StepMaker
    starts: Starts
    spool: Spool
    growth: Growth
