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
from nodectl.selection.records import JobRecord, NodeTable, Output


class Judge:
    """`completing`: jobs of whose end the plugin was told, and that hold what they held."""

    def __init__(self, calls: Calls, nodes: NodeTable, ledger: Ledger) -> None:
        self._calls = calls
        self._nodes = nodes
        self._ledger = ledger
        self._kept = kept_cores(nodes)
        self.completing: set[JobRecord] = set()

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
        broken = broken or checks.nodes(chosen, offer, self._nodes)
        if broken:
            return Refusal(PLUGIN, self._calls.fault("job_test", *broken))
        given = job.job_resrcs
        if given is None:
            given = resources.whole_nodes(job, chosen, self._nodes, self._kept, self._calls.parameters)
        room = checks.Room(self._nodes, self._kept, self._calls.parameters.tracks_memory)
        broken = checks.resources(given, job, chosen, excluded, room) or checks.start_time(job.start_time)
        if not broken and mode == SELECT_MODE_RUN_NOW and (taken := self._ledger.conflicts(job, given, gone)):
            if not self._ledger.conflicts(job, given, {*gone, *self.completing}):
                return Refusal(BUSY, NODES_BUSY)  # the plugin has been told that these jobs end
            broken = ("what others hold", taken)
        if broken:
            return Refusal(PLUGIN, self._calls.fault("job_test", *broken))
        now, kept = self._calls.now, resources.copied(given)  # a plugin may use its own for the next job
        return Choice(
            kept.node_bitmap.copy(), kept, max(job.start_time, now) if mode == SELECT_MODE_WILL_RUN else now, gone
        )
