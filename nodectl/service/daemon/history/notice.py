"""A notice, as the history keeps it until people were told. A value, in the daemon and in couriers."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Notice(NamedTuple):
    """What people are to be told of a job: the run (`restart`) and the event make its identity, `way` is how."""

    job: int
    restart: int
    event: str
    way: str
    uid: int
    record: Mapping[str, Any]
