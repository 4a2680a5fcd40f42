"""A notice, kept in the history until sent. A value, in the daemon and in couriers."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Notice(NamedTuple):
    """A notice about a job. The run (`restart`) and the event identify the notice; `way` is how to send it."""

    job: int
    restart: int
    event: str
    way: str
    uid: int
    record: Mapping[str, Any]
