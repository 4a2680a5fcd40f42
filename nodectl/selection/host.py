"""The host of a select plugin over a table of nodes.

The plugin's functions are called where and when their document says. No exception of the plugin passes, and no answer
counts before it was compared with the offer and with the resources held by other jobs (`ledger`). A plugin that breaks
a rule is named once in the log, and its job stays queued.

In the daemon's event loop, as root, and in planning commands (`nodectl select`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from bitarray import bitarray

from nodectl.model.states import COMPLETING, SUSPENDED
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.loader import Plugin
from nodectl.selection import checks, resources
from nodectl.selection.answers import BUSY, NODES_BUSY, PLUGIN, Choice, Refusal, Reserved, SelectionFailed
from nodectl.selection.calls import PREFIX, OnCall, PluginAnswer, PluginCalls
from nodectl.selection.judge import Judge
from nodectl.selection.ledger import Ledger
from nodectl.selection.modes import SELECT_CR_PLUGIN, SELECT_JOBDATA_NETWORK, SELECT_MODE_RUN_NOW
from nodectl.selection.objects import PluginObjects
from nodectl.selection.offer import Offer, Offers
from nodectl.selection.records import (
    JobRecord,
    JobResources,
    NodeRecord,
    NodeTable,
    Output,
    ReservationRequest,
    StepRecord,
)  # fmt: skip
from nodectl.selection.slurmctld import Parameters

_CHANGES = {"job_fini", "job_suspend", "job_resume", "job_expand", "job_resized", "node_init", "job_init"}
_SURE_SECONDS = 600.0  # after which a plugin may again have missed an end

__all__ = ["Choice", "Refusal", "Reserved", "Selection", "SelectionFailed"]


class Selection:
    """The host of a select plugin.

    `info`: the plugin's own objects about nodes and jobs. `ledger`: the resources held by jobs. `faults`: each rule
    that the plugin broke, as often as it did. `believes_own`: a choice of a built-in plugin is compared only with the
    resources held by other jobs; tests check all of it.
    """

    def __init__(  # the plugin, its surroundings, and the callbacks
        self, plugin: Plugin, nodes: NodeTable, caller: PluginCaller, *, parameters: Parameters | None = None,
        say: Callable[[str], object] | None = None, on_call: OnCall | None = None, believes_own: bool = False,
    ) -> None:  # fmt: skip
        given = parameters or Parameters()
        self.type = plugin.type
        self.title = plugin.title
        self.nodes = nodes
        self.ledger = Ledger(nodes, given)
        self._calls = PluginCalls(plugin, caller, given, say, on_call)
        self.info = PluginObjects(self._calls, nodes)
        self._offers = Offers(nodes)
        self._judge = Judge(self._calls, nodes, self.ledger, believes=believes_own)
        # Since the plugin was last told of all jobs: a job has ended; the plugin failed to be told of a change.
        self._ended = self._failed = False
        self._sure = 0.0

    @property
    def parameters(self) -> Parameters:
        """The configuration seen by the plugin."""
        return self._calls.parameters

    @property
    def together(self) -> AbstractContextManager[object]:
        """A context manager for calling several functions of the plugin, which costs less than each alone."""
        return self._calls.together

    @property
    def faults(self) -> list[str]:
        """The rules broken by the plugin."""
        return self._calls.faults

    def start(self, state_dir: str, jobs: Sequence[JobRecord] = (), now: float = 0.0) -> None:
        """Start the plugin in a new daemon. `jobs`: the active jobs. Raises SelectionFailed."""
        self._calls.now = self._sure = now
        self._offers.look_again()  # a node may have been drained before
        self._must("node_init", self.nodes, len(self.nodes))
        self._must("state_restore", state_dir)
        for job in jobs:
            self._calls.keeper.holds(job)
            self.info.admit(job)
            self.ledger.take(job)
        holders = [job for job in jobs if job.job_resrcs is not None]  # a job that gave all away holds nothing
        self._must("job_init", list(holders))
        self._rank()
        self.info.start(holders)
        for job in holders:
            if job.job_state == SUSPENDED:
                self.job_suspend(job, indf_susp=True)
            elif job.job_state == COMPLETING:
                self.job_fini(job)

    def _must(self, name: str, *arguments: object) -> None:
        answer = self._calls.code(name, *arguments)
        if not answer.ok:
            raise SelectionFailed(self._named(name, answer))

    def _rank(self) -> None:
        answer = self._calls.value("node_ranking", self.nodes, len(self.nodes))
        if answer.ok and answer.there and not isinstance(answer.value, bool | int):
            self._calls.nonsense("node_ranking", answer.value, "neither true nor false")

    def save(self, state_dir: str) -> None:
        """Let the plugin write the state to be read at the next start."""
        self._calls.failed("state_save", self._calls.code("state_save", state_dir))

    def end(self) -> None:
        """Free the plugin's objects. The loader of the plugin calls fini()."""
        self.info.end()

    def reconfigure(self, parameters: Parameters) -> str:
        """Give the plugin a new configuration. Return "" or the reason for which the plugin does not take it."""
        self._calls.parameters = self.ledger.parameters = parameters
        self._judge.look_again()
        return self._tell("reconfigure")

    def job_test(  # the documented function's arguments, and the time
        self, job: JobRecord, mode: int, *, candidates: Sequence[JobRecord] | None = None,
        excluded_cores: bitarray | None = None, nodes: bitarray | None = None, now: float = 0.0,
    ) -> Choice | Refusal:  # fmt: skip
        """Ask for the nodes and cores of a job: now (RUN_NOW), later (WILL_RUN), or on an empty machine (TEST_ONLY).

        Later means when other jobs have ended. Only after RUN_NOW `job_resrcs`, `node_bitmap` and `nodes` of the job
        hold the choice; otherwise the job is as it was.
        """
        self._calls.now = now
        offer = self._offers.of(job, mode, nodes)
        if isinstance(offer, Refusal):
            return offer
        found = self._judge.test(job, mode, offer, candidates, excluded_cores)
        if isinstance(found, Refusal) and found.kind == BUSY and mode == SELECT_MODE_RUN_NOW and self._has_doubts(now):
            return self._ask_again(job, offer, candidates, excluded_cores)
        return found

    def _has_doubts(self, now: float) -> bool:
        """True where the plugin may have missed the end of jobs.

        That is: a call about a change has failed, or jobs have ended and either no job holds anything or the last check
        was ten minutes ago.
        """
        if self._failed or (self._ended and self.ledger.is_empty()):
            return True
        return self._ended and now - self._sure >= _SURE_SECONDS

    def _ask_again(  # as job_test
        self, job: JobRecord, offer: Offer, candidates: Sequence[JobRecord] | None, excluded: bitarray | None
    ) -> Choice | Refusal:
        """Tell the plugin of all jobs anew, and ask again. This second answer counts."""
        self._ended = self._failed = False
        self._sure = self._calls.now
        self._resynchronise()
        found = self._judge.test(job, SELECT_MODE_RUN_NOW, offer, candidates, excluded)
        if isinstance(found, Choice):
            self._calls.fault("job_fini", "forgotten job", "left something with a job that has ended")
        return found

    def _resynchronise(self) -> None:
        """Repeat the calls of a start: select_p_node_init, the existing jobs, and each job's changes since."""
        jobs = self.ledger.jobs
        self._tell("node_init", self.nodes, len(self.nodes))
        self._tell("job_init", jobs)
        for job in jobs:
            if job in self._judge.completing:
                self._tell("job_fini", job)
            elif self.ledger.is_stopped(job):
                self._tell("job_suspend", job, True)

    def job_begin(self, job: JobRecord) -> str:
        """Begin the job with the resources chosen by job_test. Return "" or the reason for which the job must wait."""
        self._calls.keeper.holds(job)
        answer = self._calls.code("job_begin", job)
        if self._calls.failed("job_begin", answer):
            self._failed = True
            self._judge.look_again()  # asked again, the plugin may choose something else
            self._calls.keeper.forget(job)
            return self._named("job_begin", answer)
        taken = "" if self._judge.is_free(job.job_resrcs) else self.ledger.conflicts(job)
        if taken:
            self._tell("job_fini", job)
            self._calls.keeper.forget(job)
            return self._calls.fault("job_begin", "what others hold", taken)
        self.ledger.take(job)
        self._tell("select_nodeinfo_set", job)
        if job.select_packed:  # other jobs have no row while they run: no reader needs the object
            self.info.pack_job(job)
        return ""

    def job_ready(self, job: JobRecord) -> bool:
        """False while the job's nodes are not configured yet, and where the plugin fails to answer."""
        answer = self._calls.value("job_ready", job)
        if not answer.there:
            return True
        if answer.ok and not isinstance(answer.value, int):
            self._calls.nonsense("job_ready", answer.value, "neither 1 nor 0")
            return False
        return not self._calls.failed("job_ready", answer) and answer.value == 1

    def job_fini(self, job: JobRecord) -> str:
        """Tell the plugin of the beginning of the job's termination.

        The plugin may give its resources to other jobs, which begin when the job is `released` and the ledger gives
        them too.
        """
        if job in self.ledger:
            self._judge.completing.add(job)
        return self._tell("job_fini", job)

    def released(self, job: JobRecord) -> None:
        """Free the job's resources, because the job's processes are gone."""
        self.ledger.give(job)
        self._calls.keeper.forget(job)
        self._judge.completing.discard(job)
        self._ended = True

    def forget(self, job: JobRecord) -> None:
        """Drop the job's record."""
        self.released(job)
        self.info.free(job)

    def job_signal(self, job: JobRecord, signal: int) -> str:
        """Tell the plugin of a signal about to be sent to the job's processes."""
        return self._tell("job_signal", job, signal)

    def job_mem_confirm(self, job: JobRecord) -> str:
        """Ask the plugin whether the job's memory is still valid after a restart of the node. Return "" or a reason."""
        return self._tell("job_mem_confirm", job)

    def job_suspend(self, job: JobRecord, indf_susp: bool) -> str:
        """Suspend the job: its cores become free, memory and devices do not. Return "" or the reason of a failure."""
        why = self._tell("job_suspend", job, indf_susp)
        if not why:
            self.ledger.stop(job)
        return why

    def job_resume(self, job: JobRecord, indf_susp: bool) -> str:
        """Resume the job. Return "" when the job has the cores again, else the reason, such as a core in use."""
        taken = self.ledger.conflicts(job) if self.ledger.is_stopped(job) else ""
        why = taken or self._tell("job_resume", job, indf_susp)
        if not why:
            self.ledger.go_on(job)
        return why

    def expand_allow(self) -> bool:
        """True where the plugin can give a job's resources to another job."""
        answer = self._calls.value("job_expand_allow")
        if answer.ok and answer.there and not isinstance(answer.value, int):
            return not self._calls.nonsense("job_expand_allow", answer.value, "neither true nor false").fault
        return answer.ok and bool(answer.value)

    def expand(self, source: JobRecord, target: JobRecord) -> str:
        """Give all resources of `source` to `target`. Return "" or the reason of a failure."""
        if not self.expand_allow():
            return f"plugin {self.title} cannot expand jobs"
        if source is target:
            return "a job cannot be expanded by itself"
        if self.ledger.is_stopped(source) or self.ledger.is_stopped(target):
            return "a suspended job cannot be expanded, nor expand another"
        mine, theirs = source.job_resrcs, target.job_resrcs
        if mine is None or theirs is None:
            return "a job that holds nothing cannot be expanded, nor expand another"
        if self.parameters.sharers(source) != self.parameters.sharers(target):
            return "one of the jobs shares its CPUs with others, and the other one does not"
        if (mine.core_bitmap & theirs.core_bitmap).any():
            return "the jobs share CPUs: there is nothing to give"
        return self._changed("job_expand", (source, target), {source: None, target: resources.merged(theirs, mine)})

    def take_back(self, job: JobRecord, held: JobResources) -> None:
        """Let a terminating job hold again the resources given away to another job, which has ended.

        The processes of the terminating job are not gone yet.
        """
        job.job_resrcs, job.node_bitmap = held, held.node_bitmap
        job.nodes = resources.names(held.node_bitmap, self.nodes)
        self._calls.keeper.holds(job)
        self.ledger.take(job)
        self._judge.completing.add(job)

    def resized(self, job: JobRecord, node: NodeRecord) -> str:
        """Take this node from the job. Return "" or the reason of a failure."""
        held = job.job_resrcs
        if held is None or not held.node_bitmap[node.index] or held.nhosts == 1:
            return f"job {job.job_id} cannot give up node {node.name}"
        after = resources.without(held, node.index, self.nodes)
        return self._changed("job_resized", (job, node), {job: after})

    def _changed(self, name: str, arguments: Sequence[object], after: dict[JobRecord, JobResources | None]) -> str:
        """Call a function about a change of held resources. Set the resources to `after`, or back after a failure."""
        before = {job: None if job.job_resrcs is None else resources.copied(job.job_resrcs) for job in after}
        why = self._tell(name, *arguments)
        for job, held in (before if why else after).items():
            job.job_resrcs = held
            job.node_bitmap = None if held is None else held.node_bitmap
            job.nodes = "" if held is None else resources.names(held.node_bitmap, self.nodes)
            self._calls.keeper.holds(job)
        if not why:
            stopped = [job for job in after if self.ledger.is_stopped(job)]
            for job in after:
                self.ledger.give(job)
            for job in after:
                self.ledger.take(job)
            for job in stopped:
                self.ledger.stop(job)
        return why

    def step_pick_nodes(self, job: JobRecord, step: StepRecord, node_count: int) -> bitarray:
        """Return the plugin's choice of a step's nodes; without a choice the first nodes of the job."""
        allowed = self.nodes.bitmap() if job.node_bitmap is None else job.node_bitmap
        if self._calls.has("step_pick_nodes") or self._calls.has("step_finish"):
            step.select_jobinfo = self.info.new_jobinfo()
        answer = self._calls.value("step_pick_nodes", job, step.select_jobinfo, node_count)
        if answer.ok and answer.value is not None:
            wrong = checks.picked(answer.value, allowed, node_count, self.nodes)
            if not wrong:
                step.step_node_bitmap = answer.value.copy()
                return step.step_node_bitmap
            self._calls.fault("step_pick_nodes", "nodes of the step", f"returned {wrong}")
        first = [index for index, _ in zip(allowed.search(resources.ONE), range(node_count), strict=False)]
        step.step_node_bitmap = self.nodes.bitmap(first)
        return step.step_node_bitmap

    def step_finish(self, step: StepRecord, killing_step: bool) -> str:
        """Tell the plugin of a step about to be killed, or, with False, of the end of all the step's processes."""
        why = self._tell("step_finish", step, killing_step)
        if not killing_step:
            self.info.free_step(step)
        return why

    def resv_test(
        self, request: ReservationRequest, avail: bitarray, taken_cores: bitarray | None = None, now: float = 0.0
    ) -> Reserved | Refusal:
        """Ask for the nodes and cores of a reservation. `avail`: usable nodes. `taken_cores`: unusable cores."""
        self._calls.now = now
        offered, cores = avail.copy(), Output(None if taken_cores is None else taken_cores.copy())
        answer = self._calls.value("resv_test", request, request.node_cnt, offered, cores)
        if answer.fault:
            return Refusal(PLUGIN, self._named("resv_test", answer))
        answer = self._calls.null("resv_test", answer)
        if not answer.ok or answer.value is None:
            return Refusal(BUSY, answer.why if answer.own else NODES_BUSY)
        wrong = checks.picked(answer.value, avail, request.node_cnt, self.nodes)
        wrong = wrong or checks.reserved_cores(cores.value, answer.value, request, taken_cores, self.nodes)
        if wrong:
            return Refusal(PLUGIN, self._calls.fault("resv_test", "what is reserved", f"returned {wrong}"))
        return Reserved(answer.value, cores.value if request.core_cnt else None)

    def get_info(self, dinfo: int, job: JobRecord | None = None) -> object:
        """Return the plugin's information about itself or about a job; None for no information."""
        data = Output()
        answer = self._calls.code("get_info_from_plugin", dinfo, job, data)
        return None if self._calls.failed("get_info_from_plugin", answer) else data.value

    def described(self, job: JobRecord) -> dict[str, object]:
        """Return the plugin's description of a job, as far as given.

        Names: text, line, network (the requested one), cons_res (the answer for SELECT_CR_PLUGIN).
        """
        told: dict[str, object] = {"text": self.info.describe_job(job), "line": self.info.print_job(job)}
        told["network"] = self.info.job_data(job, SELECT_JOBDATA_NETWORK)
        told["cons_res"] = self.get_info(SELECT_CR_PLUGIN, job)
        return {name: value for name, value in told.items() if isinstance(value, str | int) and value != ""}

    def update_node_config(self, index: int) -> str:
        """Tell the plugin of a node's new configuration; the node's record is already up to date."""
        self._offers.look_again()
        self._judge.look_again()
        return self._tell("update_node_config", index)

    def update_node_state(self, node: NodeRecord) -> str:
        """Tell the plugin of a node's new state, such as drained; the node's record is already up to date."""
        self._offers.look_again()
        return self._tell("update_node_state", node)

    def set_devices_away(self, index: int, away: Mapping[str, str]) -> None:
        """Give no job these devices of a node. `away`: words that tell why, by key."""
        others = {node: known for node, known in self.nodes.devices_away.items() if node != index}
        self.nodes.devices_away = others | ({index: away} if away else {})
        self._judge.look_again()

    def _tell(self, name: str, *arguments: object) -> str:
        """Call a function for a number. Return "" or the failure, with plugin and function."""
        answer = self._calls.code(name, *arguments)
        if not self._calls.failed(name, answer):
            return ""
        self._failed = self._failed or name in _CHANGES
        return self._named(name, answer)

    def _named(self, name: str, answer: PluginAnswer) -> str:
        """Return the reason of a failed call in a line with the names of plugin and function."""
        return f"plugin {self.title}: {PREFIX}{name}: {answer.why}"
