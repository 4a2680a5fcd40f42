"""What the queue wants of the host of a select plugin: `nodectl.selection.host.Selection`, by its shape.

Types only, in the daemon and in commands that plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bitarray import bitarray

from nodectl.selection.answers import Choice, Refusal, Reserved
from nodectl.selection.records import JobRecord, NodeTable, ReservationRequest


class Selecting(Protocol):
    """The functions are described there."""

    @property
    def nodes(self) -> NodeTable:
        """The table of nodes."""

    def job_test(
        self,
        job: JobRecord,
        mode: int,
        *,
        candidates: Sequence[JobRecord] | None = None,
        excluded_cores: bitarray | None = None,
        nodes: bitarray | None = None,
        now: float = 0,
    ) -> Choice | Refusal:
        """Where the job would run; RUN_NOW writes it into the job."""

    def job_begin(self, job: JobRecord) -> str:
        """The job holds its `job_resrcs` from now on. "" or what the plugin says against it; then it holds nothing."""

    def job_fini(self, job: JobRecord) -> str:
        """The job's termination begins."""

    def released(self, job: JobRecord) -> None:
        """The job is over, and holds nothing more."""

    def job_suspend(self, job: JobRecord, indf: bool) -> str:
        """The job's CPUs are free for others; it keeps memory and devices. "" or what is against it."""

    def job_resume(self, job: JobRecord, indf: bool) -> str:
        """The job has its CPUs again, which the caller knows to be free. "" or what is against it."""

    def resv_test(self, request: ReservationRequest, *, busy: bitarray | None = None) -> Reserved | Refusal:
        """What the reservation would hold, without the busy cores."""
