"""How many bytes the daemon keeps for a queued job, counted against the job's user.

The count is an upper estimate of the bytes that Python uses: a mask or a range of indices of a few characters is an
object of many bytes. Text that compresses well on the disk counts uncompressed. Functions of values.
"""

from nodectl.model.number import whole
from nodectl.placement.binding.entries import MAX_ENTRIES
from nodectl.selection.records import JobRecord

_FIXED = 4 << 10  # a record, its details, its places in the line and in indices
_TEXT, _ENTRY, _RANGE = 64, 64, 192  # an object in a list
_TERM = 512  # of a dependency, in indices of both jobs


def of(job: JobRecord) -> int:
    """Return the bytes of a job's record and of all objects made from the record, without the text of a batch job."""
    details = job.details
    texts = [job.name, job.comment, job.account, job.qos, job.nodes, job.state_desc, job.select_packed]
    texts += [details.work_dir, details.std_in, details.std_out, details.std_err, details.reservation]
    texts += [*details.argv, *details.features, *details.req_nodes, *details.exc_nodes, *details.layout]
    texts += details.notices.values()
    if details.known_request is not None:
        texts += details.known_request.hosts
    size = _FIXED + _TEXT * len(texts) + sum(map(len, texts))
    size += sum(map(_of_list, details.layout.values()))
    size += _of_separated(details.dependency, ",:?", _TERM)
    return size + _of_separated(job.array_tasks, ",", _RANGE)


def _of_separated(text: str, separators: str, of_part: int) -> int:
    return len(text) + of_part * (1 + sum(map(text.count, separators))) if text else 0


def _of_list(text: str) -> int:
    """Return the bytes of a layout option, which may hold a list of masks.

    "0x1*64,0x2" stands for 65 masks, and is also kept written out.
    """
    repeated = sum(whole(rest.partition(",")[0], MAX_ENTRIES) or 0 for rest in text.split("*")[1:])
    return 2 * len(text) + _ENTRY * (1 + text.count(",") + repeated)
