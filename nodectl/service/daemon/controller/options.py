"""The shapes of a client's description of a job: the fields of `JobOptions` of org.nodectl, and names of jobs."""

from typing import TYPE_CHECKING

from nodectl.model.fields import LONGEST_NAME
from nodectl.model.request_fields import LATEST, JobOptions
from nodectl.model.wire.shape import array, integer, text
from nodectl.model.wire.table import shape_of

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

MOMENT = integer(0, LATEST)
WORD = text(LONGEST_NAME)
WORDS = array(WORD, most=10_000)
ONE_JOB: "Shape" = {"job": WORD}
SCRIPT = text(1 << 30)  # the key max_script_size bounds its bytes

JOB_OPTIONS = shape_of(JobOptions)
