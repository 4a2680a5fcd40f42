"""Around a job: the SPANK hooks and the site's script before its step begins and after its step has ended.

A moment (prolog, epilog) is first the hooks of the plugins that have one, in a process of their own, then the script
of the configuration, in another; both root's, in the job's own cgroup. What went wrong is one line; a script's word
counts before the hooks'. A job whose prolog has begun is owed an epilog, by this daemon or the next: its step's files
stay until then, and one of them says so (`Files.begin_prolog`).
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping

from nodectl.cgroup import delegation, tree
from nodectl.cgroup.constraints import wanted_controllers
from nodectl.config import Config
from nodectl.daemon.jobs.containers import Containers
from nodectl.daemon.jobs.resources import Resources
from nodectl.daemon.jobs.script_process import NO_PROGRAM
from nodectl.daemon.jobs.step_cgroups import remove_groups
from nodectl.daemon.processes.reporting_process import FIRST_EXTRA, GRACE, Helper
from nodectl.daemon.steps.live import LiveStep
from nodectl.kernel import trust
from nodectl.model.launch_order import ROWS
from nodectl.model.plugstack_entry import entry_as_list
from nodectl.model.step import Step
from nodectl.spank import job_environment, preload, probe_variable
from nodectl.spank.mentioned_hooks import MentionedHooks
from nodectl.tracing.recorder import Recorder, now

_MODULE = "nodectl.daemon.jobs.script_process"
_STOP_SECONDS = 10


class Moment:
    """`name` is the script's row in the table of hooks, its key in the configuration and its cgroup's name."""

    __slots__ = ("call", "context", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.call = f"slurm_spank_job_{name}"
        self.context = f"{name}_slurmd"  # SLURM_SCRIPT_CONTEXT


PROLOG, EPILOG = Moment("prolog"), Moment("epilog")


class Ending:
    """A job whose step has ended and whose epilog has not: the step's record, and what it will be."""

    __slots__ = ("final", "live", "record")

    def __init__(self, live: LiveStep, record: Mapping[str, object]) -> None:
        self.live = live
        self.record = record
        self.final: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()


class Jobs:
    """The prologs, epilogs and containers of one node. `mount` as in `Node`; `done(live, record)` is called at the end
    of an epilog, with the record for the history.
    """

    def __init__(
        self,
        config: Config,
        mount: str,
        containers: Containers,
        resources: Resources,
        done: Callable[[LiveStep, Mapping[str, object]], None],
    ) -> None:
        self._config = config
        self._containers = containers
        self._resources = resources
        self._mount = mount
        self._done = done
        self._mentioned_hooks = MentionedHooks()
        self._tasks: set[asyncio.Task[object]] = set()
        self._waiting: set[int] = set()  # jobs whose first step has ended and another has not
        self.ending: dict[tuple[int, int], Ending] = {}

    def any_for(self, step: Step) -> bool:
        """True when something is to run around this job. Called at every launch, and looks at every plugin then."""
        hooks = bool(step.stack) and bool(self._mentioned_hooks.places(step.stack, (PROLOG.call, EPILOG.call)))
        return hooks or bool(self._config.prolog or self._config.epilog)

    def plugins_of(self, step: Step) -> tuple[list[str], int]:
        """The files of the step's stack, and a number that is another when one of them has changed."""
        return [entry.path for entry in step.stack if not entry.missing], self._mentioned_hooks.changes

    async def prolog(self, live: LiveStep) -> str:
        """Before the step. Returns what failed, one line, "" for nothing."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # for mypy: a coroutine runs in one
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await self._run(PROLOG, live)

    def end(self, live: LiveStep, record: Mapping[str, object], *, waits: bool) -> None:
        """A job's first step has ended: the epilog and the end of the container, in the background. `waits`: other
        steps of the job run still, and it is when the last of them has ended (`release`).
        """
        if live.owes_epilog or live.files.record() is None:
            self._keep(live, record)
        self.ending[live.key] = Ending(live, record)
        if waits:
            self._waiting.add(live.step.job_id)
            self._begin(self._empty(live.step.cgroup))
        else:
            self._begin(self._end(self.ending[live.key]))

    def release(self, job: int) -> None:
        """No step of the job runs any more."""
        if job in self._waiting:
            self._waiting.remove(job)
            self._begin(self._end(self.ending[job, 0]))

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _keep(live: LiveStep, record: Mapping[str, object]) -> None:
        """For the daemon that comes after an early end of this one. On a full disk the epilog comes first."""
        try:
            live.files.write_record(record)
        except OSError as error:
            told = f"write the record of job {live.step.job_id} before its epilog: {error.strerror}"
            print(f"nodectl daemon: {told}", file=sys.stderr)

    async def _end(self, ending: Ending) -> None:
        live, record = ending.live, ending.record
        await self._empty(live.step.cgroup)
        if live.owes_epilog:
            record = await self._epilog(live, record)
        if self._containers.owed(live.step):
            record = self._noted(live, record, await self._containers.delete(live), "container")
        record = self.released(live, record)
        live.files.end_epilog()
        del self.ending[live.key]
        self._done(live, record)
        ending.final.set_result(record)

    async def _epilog(self, live: LiveStep, record: Mapping[str, object]) -> Mapping[str, object]:
        for moment in (PROLOG, EPILOG):  # what a prolog left, and what an epilog left that an earlier daemon began
            await self._empty(self._group(moment, live.step))
        record = self._noted(live, record, await self._run(EPILOG, live, record), "epilog")
        await self._empty(self._group(EPILOG, live.step))
        return record

    def released(self, live: LiveStep, record: Mapping[str, object]) -> Mapping[str, object]:
        """The last of a job, and its record after that."""
        return self._noted(live, record, self._resources.release(live), "resources")

    def _noted(self, live: LiveStep, record: Mapping[str, object], why: str, what: str) -> Mapping[str, object]:
        """The record, with a note of what went wrong after the step."""
        if why:
            record = {**record, what: why}
            self._keep(live, record)
        return record

    async def settle(self, *, patiently: bool) -> None:
        """Before the daemon ends: waits for the prologs and epilogs under way. What is not patience enough is killed;
        the next daemon begins those jobs' epilogs anew.
        """
        while self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=None if patiently else _STOP_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _empty(self, path: str) -> None:
        if path:
            await remove_groups(self._mount, path)

    def _group(self, moment: Moment, step: Step) -> str:
        """Beside the step's own; "" without cgroups."""
        return f"{os.path.dirname(step.cgroup)}/{moment.name}" if step.cgroup else ""

    def _full_path(self, moment: Moment, step: Step) -> str:
        return self._mount + self._group(moment, step) if step.cgroup else ""

    async def _run(self, moment: Moment, live: LiveStep, record: Mapping[str, object] | None = None) -> str:
        step = live.step
        variables = {**job_environment.for_job(step, moment.context, record), **job_environment.options(step)}
        group = self._full_path(moment, step)
        why = ""
        for part in (self._call_hooks, self._run_script):
            try:
                if group:
                    self._make_group(group)
                failed = await part(moment, live, variables)
            except OSError as error:
                failed = f"{moment.name}: {error.strerror}" + (f": {error.filename}" if error.filename else "")
            if failed:
                why = f"job {step.job_id}: {failed}"
                print(f"nodectl daemon: {why}", file=sys.stderr)
        return why

    def _make_group(self, path: str) -> None:
        """Raises OSError."""
        job = tree.Group(os.path.dirname(path))
        try:
            job.make()
        except FileNotFoundError:  # somebody has removed what is above it
            delegation.make(self._config.cgroup_name, wanted_controllers(self._config))
            job.make()
        tree.Group(path).make()

    async def _call_hooks(self, moment: Moment, live: LiveStep, variables: dict[str, str]) -> str:
        step = live.step
        stack = [step.stack[place] for place in self._mentioned_hooks.places(step.stack, (moment.call,))]
        if not stack:
            return ""
        trace = live.files.append_trace() if self._config.trace else -1
        environment = {**variables, **probe_variable.environment()}
        arguments = {
            "cgroup": self._full_path(moment, step),
            "spec": live.files.spec,
            "call": moment.call,
            "plugins": [entry_as_list(entry) for entry in stack],
            "timeout": step.hook_timeout,
            "versions": self._config.spank_versions,
            "trace": FIRST_EXTRA if trace >= 0 else -1,
        }
        try:
            helper = Helper(
                _MODULE,
                arguments,
                environment=preload.for_plugins(environment, (entry.path for entry in stack)),
                seconds=step.hook_timeout,
                grace=GRACE,
                extra=[trace] if trace >= 0 else [],
            )
        finally:
            if trace >= 0:
                os.close(trace)
        await helper.end()
        if helper.said:
            return helper.said[-1]
        return f"{helper.place() or moment.call}: {helper.what_happened()}"

    async def _run_script(self, moment: Moment, live: LiveStep, variables: dict[str, str]) -> str:
        path: str | None = getattr(self._config, moment.name)
        if not path:
            return ""
        started = now()
        why = await self._execute(moment, live.step, path, variables)
        if self._config.trace:
            trace = live.files.append_trace()
            Recorder(trace, "daemon").write(ROWS[moment.name], started, rc=-1 if why else 0, note=why)
            os.close(trace)
        return f"{moment.name} {why}" if why else ""

    async def _execute(self, moment: Moment, step: Step, path: str, variables: dict[str, str]) -> str:
        try:
            trust.check(path)
        except trust.Untrusted as error:
            return f"{path}: not trusted: {error}"
        except OSError as error:
            return f"{path}: {error.strerror}"
        arguments = {"cgroup": self._full_path(moment, step), "script": path}
        seconds = self._config.prolog_epilog_timeout
        helper = Helper(_MODULE, arguments, environment=variables, seconds=seconds)
        await helper.end()
        if helper.said and helper.status == NO_PROGRAM << 8:
            return helper.said[-1]
        return f"{path}: {helper.what_happened()}" if helper.status else ""
