"""How many bytes the daemon keeps for a job of the queue: what counts against its user.

Rather more than fewer, as Python has them: a mask or a range of indices of a few characters is an object of many bytes.
What compresses well on the disk counts as it is. Functions of values.
"""

from nodectl.binding.entries import MAX_ENTRIES
from nodectl.model.number import whole
from nodectl.selection.records import JobRecord

_FIXED = 4 << 10  # a record, its details, its places in the line and in indices
_TEXT, _ENTRY, _RANGE = 64, 64, 192  # an object in a list
_TERM = 512  # of a dependency, in indices of both jobs


def of(job: JobRecord) -> int:
    """Bytes of the record and of what is made of it; not of what a batch job is started with."""
    details = job.details
    texts = [job.name, job.comment, job.account, job.qos, job.nodes, job.state_desc, job.select_packed]
    texts += [details.work_dir, details.std_in, details.std_out, details.std_err, details.reservation]
    texts += [*details.argv, *details.features, *details.req_nodes, *details.exc_nodes, *details.layout]
    if details.known_request is not None:
        texts += details.known_request.hosts
    size = _FIXED + _TEXT * len(texts) + sum(map(len, texts))
    size += sum(map(_of_list, details.layout.values()))
    size += _of_separated(details.dependency, ",:?", _TERM)
    return size + _of_separated(job.array_tasks, ",", _RANGE)


def _of_separated(text: str, separators: str, of_part: int) -> int:
    return len(text) + of_part * (1 + sum(map(text.count, separators))) if text else 0


def _of_list(text: str) -> int:
    """An option of layout, perhaps with a list of masks: "0x1*64,0x2" is 65 of them, and written out as well."""
    repeated = sum(whole(rest.partition(",")[0], MAX_ENTRIES) or 0 for rest in text.split("*")[1:])
    return 2 * len(text) + _ENTRY * (1 + text.count(",") + repeated)
