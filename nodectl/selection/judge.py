"""select_p_job_test: asked, and its answer compared with what was offered and with what others hold.

Used by the host of a select plugin (`host.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bitarray import bitarray

from nodectl.selection import checks, resources
from nodectl.selection.answers import BUSY, NEVER, NODES_BUSY, NOT_AVAILABLE, PLUGIN, Choice, Refusal
from nodectl.selection.calls import Answer, Calls
from nodectl.selection.cores import kept_cores
from nodectl.selection.ledger import Ledger
from nodectl.selection.modes import SELECT_MODE_RUN_NOW, SELECT_MODE_TEST_ONLY, SELECT_MODE_WILL_RUN
from nodectl.selection.offer import Offer
from nodectl.selection.records import JobRecord, JobResources, NodeTable, Output


class Judge:
    """`completing`: jobs of whose end the plugin was told, and that hold what they held. `believes`: what the service's
    own plugin answers is compared only with what others hold.
    """

    def __init__(self, calls: Calls, nodes: NodeTable, ledger: Ledger, *, believes: bool = False) -> None:
        self._calls = calls
        self._nodes = nodes
        self._ledger = ledger
        self._kept = kept_cores(nodes)
        self.completing: set[JobRecord] = set()
        self._believes = believes and calls.is_ours
        self._free: JobResources | None = None  # what was found to be nobody's, when the ledger was at
        self._free_at = 0

    def is_free(self, resources: JobResources | None) -> bool:
        """True for what has just been chosen, and is nobody's since."""
        return resources is not None and resources is self._free and self._free_at == self._ledger.changes

    def look_again(self) -> None:
        """A node's configuration has changed."""
        self._kept = kept_cores(self._nodes)

    def test(
        self, job: JobRecord, mode: int, offer: Offer, candidates: Sequence[JobRecord] | None,
        excluded: bitarray | None,
    ) -> Choice | Refusal:  # fmt: skip
        """Calls select_p_job_test and looks at what comes back; the job is written to as `Selection.job_test` says."""
        before = (job.job_resrcs, job.node_bitmap, job.nodes, job.start_time)
        job.job_resrcs, job.start_time = None, 0.0
        chosen, preempted = offer.nodes.copy(), Output()
        given = None if candidates is None else list(candidates)
        held_back = None if excluded is None else excluded.copy()
        answer = self._calls.code(
            "job_test",
            job,
            chosen,
            offer.min_nodes,
            offer.max_nodes,
            offer.req_nodes,
            mode,
            given,
            preempted,
            held_back,
        )
        found = self._judged(job, mode, offer, answer, chosen, preempted, candidates or (), excluded)
        job.job_resrcs, job.node_bitmap, job.nodes, job.start_time = before
        if isinstance(found, Choice) and mode == SELECT_MODE_RUN_NOW:
            job.job_resrcs, job.node_bitmap = found.resources, found.nodes
            job.nodes = resources.names(found.nodes, self._nodes)
        return found

    def _judged(  # what went in and what came out
        self, job: JobRecord, mode: int, offer: Offer, answer: Answer, chosen: bitarray, preempted: Output,
        candidates: Sequence[JobRecord], excluded: bitarray | None,
    ) -> Choice | Refusal:  # fmt: skip
        if answer.fault:
            return Refusal(PLUGIN, f"plugin {self._calls.type}: select_p_job_test: {answer.why}")
        if not answer.ok:
            kind, words = (NEVER, NOT_AVAILABLE) if mode == SELECT_MODE_TEST_ONLY else (BUSY, NODES_BUSY)
            return Refusal(kind, answer.why if answer.own else words)
        gone, broken = checks.preempted(preempted.value, candidates)
        if not self._believes:
            broken = broken or checks.nodes(chosen, offer, self._nodes)
        if broken:
            return Refusal(PLUGIN, self._calls.fault("job_test", *broken))
        given = job.job_resrcs
        if given is None:
            given = resources.whole_nodes(job, chosen, self._nodes, self._kept, self._calls.parameters)
        if not self._believes:
            room = checks.Room(self._nodes, self._kept, self._calls.parameters.tracks_memory)
            broken = checks.resources(given, job, chosen, excluded, room) or checks.start_time(job.start_time)
        if not broken and mode == SELECT_MODE_RUN_NOW and (taken := self._ledger.conflicts(job, given, gone)):
            if not self._ledger.conflicts(job, given, {*gone, *self.completing}):
                return Refusal(BUSY, NODES_BUSY)  # the plugin has been told that these jobs end
            broken = ("what others hold", taken)
        if broken:
            return Refusal(PLUGIN, self._calls.fault("job_test", *broken))
        # A plugin may use its own for the next job.
        now, kept = self._calls.now, given if self._believes else resources.copied(given)
        self._free, self._free_at = (kept if mode == SELECT_MODE_RUN_NOW and not gone else None), self._ledger.changes
        return Choice(
            kept.node_bitmap.copy(), kept, max(job.start_time, now) if mode == SELECT_MODE_WILL_RUN else now, gone
        )
