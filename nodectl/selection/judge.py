"""The call of select_p_job_test, and the check of the answer against the offer and the resources of other jobs.

Used by the host of a select plugin (`host.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from operator import attrgetter

from bitarray import bitarray

from nodectl.model.device_part import device_of
from nodectl.selection import checks, resources
from nodectl.selection.answers import BUSY, NEVER, NODES_BUSY, NOT_AVAILABLE, PLUGIN, Choice, Refusal
from nodectl.selection.calls import PluginAnswer, PluginCalls
from nodectl.selection.cores import kept_cores
from nodectl.selection.ledger import Ledger
from nodectl.selection.modes import SELECT_MODE_RUN_NOW, SELECT_MODE_TEST_ONLY, SELECT_MODE_WILL_RUN
from nodectl.selection.offer import Offer
from nodectl.selection.records import JobRecord, JobResources, NodeTable, Output

_MOST_ALIKE = 4
_of_job = attrgetter("user_id", "group_id", "qos", "time_limit")
_of_details = attrgetter(
    "num_tasks", "cpus_per_task", "min_cpus", "min_nodes", "max_nodes", "pn_min_cpus", "pn_min_memory", "mem_per_cpu",
    "contiguous", "overcommit", "share_res", "whole", "core_spec", "req_nodes", "exc_nodes", "features",
)  # fmt: skip


class Judge:
    """The judge of a plugin's choices.

    `completing`: jobs of whose end the plugin was told, and that still hold their resources. `believes`: the answers of
    a built-in plugin are compared only with the resources held by other jobs.
    """

    def __init__(self, calls: PluginCalls, nodes: NodeTable, ledger: Ledger, *, believes: bool = False) -> None:
        self._calls = calls
        self._nodes = nodes
        self._ledger = ledger
        self._kept = kept_cores(nodes)
        self.completing: set[JobRecord] = set()
        self._believes = believes and calls.is_ours
        self._free: JobResources | None = None  # resources found free when the ledger's `changes` was
        self._free_at = 0
        # The latest questions, with the resources held by other jobs then, and the choices.
        self._alike: dict[tuple[object, ...], tuple[JobResources, object, str]] = {}

    def is_free(self, resources: JobResources | None) -> bool:
        """True where these resources were just chosen and no job has taken any since."""
        return resources is not None and resources is self._free and self._free_at == self._ledger.changes

    def look_again(self) -> None:
        """Forget earlier answers, because the configuration of a node or of the plugin has changed."""
        self._alike.clear()
        self._free = None
        self._kept = kept_cores(self._nodes)

    def test(
        self, job: JobRecord, mode: int, offer: Offer, candidates: Sequence[JobRecord] | None,
        excluded: bitarray | None,
    ) -> Choice | Refusal:  # fmt: skip
        """Call select_p_job_test and check the answer. Writes to the job as documented at `Selection.job_test`.

        A plugin that chose resources of completing jobs is asked once more: the same may be free elsewhere.
        """
        found = self._asked(job, mode, offer, candidates, excluded)
        if isinstance(found, Choice) or found.ending is None or candidates is not None:
            return found
        if self._calls.is_ours:
            with self._ending_held():
                return self._asked(job, mode, offer, None, excluded)
        elsewhere = offer.without(found.ending)
        return found if elsewhere is None else self._asked(job, mode, elsewhere, None, excluded)

    @contextlib.contextmanager
    def _ending_held(self) -> Iterator[None]:
        """Let the plugin count the completing jobs as running inside of the context, by job_begin and then job_fini."""
        ending = [one for one in self.completing if one.job_resrcs is not None]
        for one in ending:
            if self._calls.code("job_begin", one).ok and self._ledger.is_stopped(one):
                self._calls.code("job_suspend", one, True)
        try:
            yield
        finally:
            for one in ending:
                self._calls.code("job_fini", one)

    def _asked(
        self, job: JobRecord, mode: int, offer: Offer, candidates: Sequence[JobRecord] | None,
        excluded: bitarray | None,
    ) -> Choice | Refusal:  # fmt: skip
        before = (job.job_resrcs, job.node_bitmap, job.nodes, job.start_time)
        shape = None
        if mode == SELECT_MODE_RUN_NOW and candidates is None and excluded is None:
            shape = self._shape(job, offer)
        if shape is not None and (known := self._alike.get(shape)) is not None:
            return self._chosen_again(job, known)
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
            if shape is not None:
                if len(self._alike) >= _MOST_ALIKE:
                    self._alike.clear()
                self._alike[shape] = resources.copied(found.resources), job.details.request, job.nodes
        return found

    def _shape(self, job: JobRecord, offer: Offer) -> tuple[object, ...] | None:
        """Return all values by which the built-in plugin answers a question; None where each answer must be checked.

        A question just asked, beside jobs that held the same, is not asked again.
        """
        details = job.details
        request = details.known_request
        if not self._believes or request is None or self.completing:
            return None
        # Of several nodes a plugin may choose by more than the resources held.
        if (held := self._ledger.picture()) is None or (len(self._nodes) > 1 and not self._ledger.is_empty()):
            return None
        gres = tuple(details.gres.items())
        return (
            *_of_job(job),
            *_of_details(details),
            gres,
            id(request),
            offer.nodes.tobytes(),
            *held,
        )  # `_alike` keeps that request

    def _chosen_again(self, job: JobRecord, known: tuple[JobResources, object, str]) -> Choice:
        chosen, _, job.nodes = known
        kept = resources.copied(chosen)
        job.job_resrcs, job.node_bitmap = kept, kept.node_bitmap.copy()
        self._free, self._free_at = kept, self._ledger.changes
        return Choice(job.node_bitmap, kept, self._calls.now, [])

    def _judged(  # the arguments and the results of the call
        self, job: JobRecord, mode: int, offer: Offer, answer: PluginAnswer, chosen: bitarray, preempted: Output,
        candidates: Sequence[JobRecord], excluded: bitarray | None,
    ) -> Choice | Refusal:  # fmt: skip
        if answer.fault:
            return Refusal(PLUGIN, f"plugin {self._calls.title}: select_p_job_test: {answer.why}")
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
            room = checks.ChoiceBounds(self._nodes, self._kept, self._calls.parameters.tracks_memory)
            broken = checks.resources(given, job, chosen, excluded, room) or checks.start_time(job.start_time)
        if not broken and mode == SELECT_MODE_RUN_NOW and self._is_used_outside(given):
            return Refusal(BUSY, NODES_BUSY)
        if not broken and mode == SELECT_MODE_RUN_NOW and (taken := self._ledger.conflicts(job, given, gone)):
            if not self._ledger.conflicts(job, given, {*gone, *self.completing}):
                return Refusal(BUSY, NODES_BUSY, self._ending_on(given.node_bitmap))
            broken = ("what others hold", taken)
        if broken:
            return Refusal(PLUGIN, self._calls.fault("job_test", *broken))
        # The plugin may use its own object again for the next job.
        now, kept = self._calls.now, given if self._believes else resources.copied(given)
        self._free, self._free_at = (kept if mode == SELECT_MODE_RUN_NOW and not gone else None), self._ledger.changes
        return Choice(
            kept.node_bitmap.copy(), kept, max(job.start_time, now) if mode == SELECT_MODE_WILL_RUN else now, gone
        )

    def _is_used_outside(self, given: JobResources) -> bool:
        """True where a program outside of all jobs uses one of the devices: a plugin of others may not know."""
        away = self._nodes.devices_away
        return any(device_of(key) in away[node] for node in away for key in given.gres.get(node, ()))

    def _ending_on(self, nodes: bitarray) -> bitarray:
        """Return the nodes with resources of completing jobs."""
        found = bitarray(len(nodes))
        for one in self.completing:
            if one.job_resrcs is not None:
                found |= one.job_resrcs.node_bitmap
        return found & nodes
