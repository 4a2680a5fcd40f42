"""The placement of a step: nodes, CPUs, memory and devices, and the place of each task.

The select plugin (`chooser.py`) chooses the nodes from the table, as for a job, and says whether the step fits beside
the running ones. With select/cons_tres, `nodectl.placement.binding` then lays the step out on the free CPUs of the
chosen nodes, as a step in its job: the same number of tasks on each node, and no more CPUs than they need. With another
plugin the step holds all that the plugin chose. For a step that holds nothing for itself (--overlap) all nodes count as
idle.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodectl.cluster.leader.chooser import Chooser, cons_tres
from nodectl.cluster.leader.gpus import ALL, Gpus
from nodectl.cluster.leader.holding import Held, Share, resources_of, shares_of
from nodectl.cluster.leader.wish import Placed, Wish
from nodectl.cluster.machine import Machine
from nodectl.model.device_part import WHOLE
from nodectl.model.states import RUNNING
from nodectl.placement.binding.allocation import Allocation, NodeGrant
from nodectl.placement.binding.devices import Wanted, hold
from nodectl.placement.binding.job import NEVER, check_names, specialised, tasks_of
from nodectl.placement.binding.layout import Layout, NodeShare
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.request import LayoutRequest, Settings
from nodectl.placement.binding.step import place
from nodectl.placement.machine.declared_devices import GPU
from nodectl.placement.machine.topology import Topology
from nodectl.selection.answers import BUSY, Choice, Refusal, SelectionFailed
from nodectl.selection.host import Selection
from nodectl.selection.ledger import Ledger
from nodectl.selection.modes import NODE_STATE_DOWN, NODE_STATE_IDLE, SELECT_MODE_RUN_NOW, SELECT_MODE_TEST_ONLY
from nodectl.selection.planning import allocation_of, details_of
from nodectl.selection.records import JobDetails, JobRecord, JobResources, NodeRecord, NodeTable


class Table:
    """The joined nodes, by rank, and the resources held by steps there."""

    def __init__(self, settings: Settings | None = None, chooser: Chooser | None = None) -> None:
        self._chooser = chooser or cons_tres(settings)
        self.machines: dict[int, Machine] = {}
        self.names: dict[int, str] = {}
        self._down: dict[int, str] = {}
        self._selection: Selection | None = None
        self._ranks: tuple[int, ...] = ()
        self._topologies: list[Topology] = []
        self.indexed_names: list[str] = []  # of the nodes in the table
        self._jobs: dict[int, JobRecord] = {}
        self._holdings: dict[int, Held] = {}
        self._used: dict[int, int] = {}  # by rank, masks of the CPUs that steps have for themselves
        self._usable: list[int] = []  # of the nodes in the table
        self._most_gpus: dict[str, int] | None = None
        self._number = 0

    def add(self, rank: int, name: str, machine: Machine) -> None:
        """Add a joined node, also for the second time."""
        same = self.machines.get(rank) == machine and self.names.get(rank) == name
        self.machines[rank], self.names[rank] = machine, name
        was_down = self._down.pop(rank, None) is not None
        if not same:
            self._most_gpus = None
            self._let_go()
        elif was_down and self._selection is not None:
            self._set_state(rank, NODE_STATE_IDLE)

    def take_out(self, rank: int, reason: str) -> None:
        """Place no more steps on a node."""
        self._down[rank] = reason  # also for a node that has not joined, as reported to a new leader
        if rank in self.machines and self._selection is not None:
            self._set_state(rank, NODE_STATE_DOWN)

    def _set_state(self, rank: int, state: int) -> None:
        selection = self.selection
        node = selection.nodes[self._index(rank)]
        node.node_state = state
        selection.update_node_state(node)

    def why_down(self, rank: int) -> str:
        """Return the reason why a node gets no steps; "" where the node gets steps."""
        return self._down.get(rank, "")

    def is_up(self, rank: int) -> bool:
        """Return whether steps are placed on a node."""
        return rank in self.machines and rank not in self._down

    @property
    def settings(self) -> Settings:
        """The settings for placing steps."""
        return self._chooser.parameters.settings

    @property
    def selection(self) -> Selection:
        """The select plugin over the present nodes. Raises NoLayout where the plugin fails."""
        if self._selection is None:
            try:
                self._selection = self._made()
            except SelectionFailed as error:
                raise NoLayout(str(error)) from None
        return self._selection

    def _let_go(self) -> None:
        """End the plugin's selection after nodes or holdings have changed; the next use makes a new selection."""
        if self._selection is not None:
            self._selection.end()
            self._selection = None

    def end(self) -> None:
        """End the plugin when the leader ends."""
        self._let_go()
        self._chooser.end()

    def _made(self) -> Selection:
        self._ranks = tuple(sorted(self.machines))
        self._topologies = [self.machines[rank].topology for rank in self._ranks]
        self.indexed_names = [self.names[rank] for rank in self._ranks]
        self._usable = [self._usable_of(rank) for rank in self._ranks]
        nodes = NodeTable(self._record(rank) for rank in self._ranks)
        place_of = {rank: index for index, rank in enumerate(self._ranks)}
        there = [job for number, job in self._jobs.items() if self._holdings[number].write(job, nodes, place_of)]
        return self._chooser.begin(nodes, there)

    def _usable_of(self, rank: int) -> int:
        topology = self.machines[rank].topology
        return topology.usable & ~specialised(topology, self.settings)

    def _record(self, rank: int) -> NodeRecord:
        machine = self.machines[rank]
        return NodeRecord(
            self.names[rank],
            machine.topology,
            real_memory=machine.memory,
            reserved_cpus=machine.topology.usable & ~self._usable[bisect_left(self._ranks, rank)],
            devices=machine.devices,
            node_state=NODE_STATE_DOWN if rank in self._down else NODE_STATE_IDLE,
        )

    def place(self, wish: Wish) -> Placed | None:
        """Take the resources for a step and lay the step out; None where the step must wait.

        Raises NoLayout where the step never fits.
        """
        if not self.machines:
            raise NoLayout(NEVER)
        try:
            return self._placed(wish)
        except NoLayout:
            if wish.gpus.said or wish.gpus.is_all:
                raise
            return self._placed(replace(wish, gpus=ALL))

    def _placed(self, wish: Wish) -> Placed | None:
        selection, request = self.selection, wish.request
        if request.nodelist or request.exclude:
            check_names(request, self.indexed_names)
        job = self._job(wish)
        if not self._chooser.lays_out:  # nodectl's own plugin ignores the network
            selection.info.admit(job, is_kept=False)
        placed = None
        try:
            placed = self._placed_as(job, wish, selection)
        finally:
            if placed is None or not placed.held.number:
                selection.info.free(job)
        return placed

    def _placed_as(self, job: JobRecord, wish: Wish, selection: Selection) -> Placed | None:
        """Place the step as this job of the plugin. Raises NoLayout."""
        request = wish.request
        in_use = self._ledger().with_devices if wish.gpus.is_all else ()
        found = self._chosen(job, request, without=in_use)
        if isinstance(found, Refusal):
            self._must_fit_some_day(job, request, Refusal(BUSY, found.reason) if in_use else found)
            return None
        if self._chooser.lays_out:
            with contextlib.suppress(NoLayout):
                placed = self._begun(job, wish, self._evenly(found, request))
                if placed is not None:
                    return placed
        # As it was chosen, for a job: some nodes may have more tasks than others.
        chosen = replace(allocation_of(found, selection.nodes, request), own=True)
        return self._begun(job, wish, chosen, None if self._chooser.lays_out else found.resources)

    def _begun(
        self, job: JobRecord, wish: Wish, allocation: Allocation, chosen_for: JobResources | None = None
    ) -> Placed | None:
        """Lay the step out on the allocation and hold the resources. Raises NoLayout.

        Return None where steps hold some of the resources already. With `chosen_for`, the step holds all of that
        choice.
        """
        chosen = len(allocation.nodes)  # for -N 1-3, and with nodes without tasks
        nodes = (chosen, chosen) if wish.request.nodes else None
        step = replace(wish.request, relative=None, exclusive=False, nodes=nodes)
        layout = place(self._topologies, allocation, step, self.settings, reasons=False)
        try:
            shares = self._shares(layout, wish)
            if chosen_for is not None:
                shares = shares_of(chosen_for, self.selection.nodes, shares, wish.memory)
        except NoLayout:  # the nodes of its tasks have fewer free GPUs than nodes elsewhere
            if self._holdings:
                return None
            raise
        held = Held({self._ranks[index]: share for index, share in shares.items()})
        if not step.overlap and not self._begin(job, held, shares):
            return None
        return Placed(layout, self._ranks, held)

    def _begin(self, job: JobRecord, held: Held, shares: Mapping[int, Share]) -> bool:
        """Hold the shares for the step. Return False where the plugin refuses because the resources are taken."""
        selection = self.selection
        job.job_resrcs = resources_of(shares, selection.nodes)
        job.node_bitmap = job.job_resrcs.node_bitmap
        if selection.job_begin(job):
            return False
        job.job_state = RUNNING
        held.number = job.job_id
        self._jobs[job.job_id], self._holdings[job.job_id] = job, held
        for rank, share in held.shares.items():
            self._used[rank] = self._used.get(rank, 0) | share.mask
        return True

    def _evenly(self, found: Choice, request: LayoutRequest) -> Allocation:
        """Return an allocation of the free CPUs on the chosen nodes.

        srun lays a step out on all of its job's nodes, with the same number of tasks on each.
        """
        per_node = request.ntasks_per_node or 0
        if per_node * found.nodes.count() < tasks_of(request):
            per_node = 0  # more tasks than that still go to each node
        most = per_node * (request.cpus_per_task or 1)
        grants = []
        for index in found.nodes.search(1):
            free = self._usable[index]
            if not request.overlap:
                free &= ~self._used.get(self._ranks[index], 0)
            count = free.bit_count()
            grants.append(NodeGrant(index, self.indexed_names[index], free, min(count, most) if most else count))
        return Allocation(tuple(grants))

    def _chosen(
        self, job: JobRecord, request: LayoutRequest, *, ever: bool = False, without: Iterable[int] = ()
    ) -> Choice | Refusal:
        """Return the plugin's choice among the nodes in operation.

        `without`: indices of nodes to leave out; `ever`: choose as if all nodes were idle.
        """
        ever = ever or request.overlap
        among = None
        if request.relative or ever or without:
            among = self.selection.nodes.bitmap(index for index, rank in enumerate(self._ranks) if self.is_up(rank))
            among[: request.relative or 0] = 0
            for index in () if ever else without:
                among[index] = 0
        return self.selection.job_test(job, SELECT_MODE_TEST_ONLY if ever else SELECT_MODE_RUN_NOW, nodes=among)

    def _job(self, wish: Wish) -> JobRecord:
        request = wish.request
        details = details_of(replace(request, relative=None))
        details.pn_min_memory, details.mem_per_cpu = wish.memory, wish.memory_per_cpu
        if request.hosts:
            details.req_nodes = tuple(dict.fromkeys(request.hosts))
            details.min_nodes = details.max_nodes = len(details.req_nodes)
        if wish.gpus.asked.count and not wish.gpus.is_all:
            self._ask_for_gpus(details, wish.gpus)
        if wish.network:
            details.layout = {**details.layout, "network": wish.network}
        self._number += 1
        return JobRecord(self._number, details=details)

    def _ask_for_gpus(self, details: JobDetails, gpus: Gpus) -> None:
        """Ask for the same number of GPUs on each node: the highest need of a node. Raises NoLayout."""
        asked = self._asked(gpus)
        most = self.most_gpus.get(asked.type, 0)
        if not self.most_gpus:
            raise NoLayout("GPUs are asked for, and the nodes of this cluster have none to give")
        least = min(gpus.nodes(most), details.max_nodes or details.num_tasks, details.num_tasks)
        details.min_nodes = max(details.min_nodes, least)
        count = gpus.on(0, details.min_nodes, -(-details.num_tasks // details.min_nodes))
        details.gres = {f"{GPU}:{asked.type}" if asked.type else GPU: count}
        details.layout = {"gres_flags": "enforce-binding"} if asked.enforce else {}

    def _asked(self, gpus: Gpus) -> Wanted:
        """Return the wish for GPUs, without a type where no GPU's type is known: then Slurm gave GPUs of the right
        type.
        """
        return gpus.asked if len(self.most_gpus) > 1 else replace(gpus.asked, type="")

    @property
    def most_gpus(self) -> Mapping[str, int]:
        """The highest number of GPUs on a node, by type; "" for any type. GPUs of unknown type count only for ""."""
        if self._most_gpus is None:
            self._most_gpus = {}
            for devices in {machine.devices for machine in self.machines.values()}:
                counts = Counter(kind for one in devices if one.name == GPU for kind in {one.type, ""})
                for kind, count in counts.items():
                    self._most_gpus[kind] = max(count, self._most_gpus.get(kind, 0))
        return self._most_gpus

    def _shares(self, layout: Layout, wish: Wish) -> dict[int, Share]:
        """Return the step's shares, by index of the node: CPUs, memory and GPUs. Raises NoLayout."""
        known: dict[Share, Share] = {}
        shares = {}
        for nodeid, part in enumerate(layout.nodes):
            cpus = part.cpus.bit_count()
            memory = wish.memory or wish.memory_per_cpu * cpus
            gpus = self._gpus(wish, part, wish.gpus.on(nodeid, len(layout.nodes), part.ntasks))
            share = Share(part.cpus, cpus, memory, part.ntasks, gpus)
            shares[part.node] = known.setdefault(share, share)
        return shares

    def _gpus(self, wish: Wish, part: NodeShare, count: int) -> tuple[str, ...]:
        """Return the keys of a step's GPUs on a node: all GPUs, or `count` near the step's CPUs. Raises NoLayout."""
        machine = self.machines[self._ranks[part.node]]
        if wish.gpus.is_all:
            return tuple(device.key for device in machine.devices if device.name == GPU)
        if not count:
            return ()
        used = {} if wish.request.overlap else self._ledger().devices_used(part.node)
        loads = dict.fromkeys(used, WHOLE)
        asked = replace(self._asked(wish.gpus), count=count)
        return tuple(device.key for device in hold(machine.devices, asked, loads, part.cpus, machine.topology))

    def _must_fit_some_day(self, job: JobRecord, request: LayoutRequest, busy: Refusal) -> None:
        """Raise NoLayout where the job would not fit on the present nodes, even idle."""
        never = self._chosen(job, request, ever=True)
        if isinstance(never, Refusal):
            raise NoLayout(never.reason)
        if busy.kind != BUSY:
            raise NoLayout(busy.reason)

    def never_fits(self, wish: Wish) -> str:
        """Return the reason why the step never fits on the remaining nodes, even idle; "" where the step can fit."""
        try:
            self._must_fit_some_day(self._job(wish), wish.request, Refusal(BUSY, ""))
        except NoLayout as error:
            if wish.gpus.said or wish.gpus.is_all:
                return error.reason
            return self.never_fits(replace(wish, gpus=ALL))
        return ""

    def hold(self, held: Held) -> None:
        """Record the shares of an earlier leader's step."""
        if held.number:
            self._number = max(self._number, held.number)
            job = JobRecord(held.number)
            self._jobs[held.number], self._holdings[held.number] = job, held
            for rank, share in held.shares.items():
                self._used[rank] = self._used.get(rank, 0) | share.mask
            self._let_go()

    def release(self, held: Held) -> None:
        """Release the shares of an ended step."""
        job = self._jobs.pop(held.number, None)
        if self._holdings.pop(held.number, None) is not None:
            for rank, share in held.shares.items():
                self._used[rank] &= ~share.mask
        if job is not None and self._selection is not None:
            self._selection.job_fini(job)
            self._selection.forget(job)

    def give_up(self, held: Held, rank: int) -> bool:
        """Release a step's share on a lost node and tell the plugin; the step goes on without the node.

        Return False where nothing changes: the step holds nothing there, or only that share, or the plugin keeps the
        share.
        """
        share = held.shares.get(rank)
        if share is None or held.number not in self._holdings or len(held.shares) == 1:
            return False
        job = self._jobs[held.number]
        if (
            self._selection is not None
            and rank in self.machines
            and self._selection.resized(job, self._selection.nodes[self._index(rank)])
        ):
            return False  # the log says why
        held.shares = {other: kept for other, kept in held.shares.items() if other != rank}
        self._used[rank] &= ~share.mask
        return True

    def cpus(self) -> dict[str, int]:
        """Return the number of CPUs usable by steps, by name of each node."""
        return {self.names[rank]: self._usable_of(rank).bit_count() for rank in sorted(self.machines)}

    def cpus_used(self, rank: int) -> int:
        """Return the mask of the CPUs held by steps on a node."""
        return self._ledger().cpus_used(self._index(rank))

    def memory_used(self, rank: int) -> int:
        """Return the MiB held by steps on a node."""
        return self._ledger().memory_used(self._index(rank))

    def devices_used(self, rank: int) -> list[str]:
        """Return the keys of the devices held by steps on a node."""
        return sorted(self._ledger().devices_used(self._index(rank)))

    def _ledger(self) -> Ledger:
        return self.selection.ledger

    def _index(self, rank: int) -> int:
        return bisect_left(self._ranks, rank)
