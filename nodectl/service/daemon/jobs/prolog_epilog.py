"""The SPANK hooks and the site's script around a job: the prolog before the first step, the epilog after the last.

At each of these two moments the daemon first calls the hooks of the plugins which have them, in a separate process, and
then the script of the configuration, in another process. Both processes run as root and in the job's own cgroup. An
error is reported as one line; where both failed, the script's line counts. The daemon is the controller, too: it runs
the scripts of Slurm's controller, `prolog_slurmctld` before the prolog and `epilog_slurmctld` after the epilog.
"""

import os
from collections.abc import Mapping

from nodectl import messages
from nodectl.kernel import trust
from nodectl.kernel.children import NO_PROGRAM
from nodectl.launch.cgroup import delegation, shares, tree
from nodectl.launch.cgroup.constraints import wanted_controllers
from nodectl.model import launch_order
from nodectl.model.config import Config
from nodectl.model.launch_order import Hook
from nodectl.model.plugstack_entry import entry_as_list
from nodectl.model.step import Step
from nodectl.plugin_host.tracing.recorder import Recorder, now
from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks
from nodectl.service.daemon.jobs.cgroup_removals import remove_step_cgroup
from nodectl.service.daemon.processes.reporting_process import FIRST_EXTRA, GRACE, ReportingProcess
from nodectl.service.daemon.steps.live import LiveStep
from nodectl.spank import job_environment, preload, probe_variable
from nodectl.spank.mentioned_hooks import MentionedHooks

_MODULE = "nodectl.service.daemon.jobs.script_process"
_MEMORY = ("memory.high", "memory.max", "memory.swap.max")


class Moment:
    """Prolog or epilog.

    `script` is the script's row in the order of a launch, and `name` the row's name, which is the script's key in the
    configuration; `hook` is the row of the plugins' hook, None for the controller's; `group` the name of their cgroup;
    `context` the value of SLURM_SCRIPT_CONTEXT.
    """

    __slots__ = ("context", "group", "hook", "name", "script")

    def __init__(self, script: Hook, hook: Hook | None, group: str, context: str) -> None:
        self.script = script
        self.name = script.call
        self.hook = hook
        self.group = group
        self.context = context


PROLOG = Moment(launch_order.PROLOG, launch_order.SPANK_JOB_PROLOG, "prolog", "prolog_slurmd")
EPILOG = Moment(launch_order.EPILOG, launch_order.SPANK_JOB_EPILOG, "epilog", "epilog_slurmd")
CONTROLLERS_PROLOG = Moment(launch_order.PROLOG_SLURMCTLD, None, "prolog", "prolog_slurmctld")
CONTROLLERS_EPILOG = Moment(launch_order.EPILOG_SLURMCTLD, None, "epilog", "epilog_slurmctld")
_ALL = (PROLOG, EPILOG, CONTROLLERS_PROLOG, CONTROLLERS_EPILOG)
_CALLS = [moment.hook.call for moment in _ALL if moment.hook is not None]


class PrologEpilog:
    """The prologs and epilogs of the node's jobs. `mount` is the cgroup2 mount.

    The daemon waits for `tasks` before it ends.
    """

    def __init__(self, config: Config, mount: str, tasks: BackgroundTasks) -> None:
        self._config = config
        self._mount = mount
        self._tasks = tasks
        self._mentioned_hooks = MentionedHooks()

    def any_for(self, step: Step) -> bool:
        """Return True when a hook or script must run around this job. Every launch calls this method.

        It looks at every plugin. Hooks and scripts run as root: a user's own node has none.
        """
        if os.geteuid() != 0:
            return False
        hooks = bool(step.stack) and bool(self._mentioned_hooks.places(step.stack, _CALLS))
        return hooks or any(map(self._script, _ALL))

    def plugins_of(self, step: Step) -> tuple[list[str], int]:
        """Return the plugin files of the step's stack, and a number changed with each change of a plugin file."""
        return [entry.path for entry in step.stack if not entry.missing], self._mentioned_hooks.changes

    async def prolog(self, live: LiveStep) -> str:
        """Run the prolog, before the first step. Return the error as a single line, "" for none."""
        self._tasks.add_current()
        return await self._run(CONTROLLERS_PROLOG, live) or await self._run(PROLOG, live)

    async def epilog(self, live: LiveStep, record: Mapping[str, object]) -> str:
        """Run the epilog, after the last step. Return the error as a single line, "" for none."""
        for moment in (PROLOG, EPILOG):  # processes left by a prolog, or by the epilog of an earlier daemon
            await self._empty(moment, live.step)
        why = await self._run(EPILOG, live, record)
        return await self._run(CONTROLLERS_EPILOG, live, record) or why

    async def end_epilog(self, live: LiveStep) -> None:
        """Kill the remaining processes in the epilog's cgroup, which may take long, and remove the cgroup."""
        await self._empty(EPILOG, live.step)

    async def _empty(self, moment: Moment, step: Step) -> None:
        await remove_step_cgroup(self._mount, self._group(moment, step))

    def _group(self, moment: Moment, step: Step) -> str:
        """Return the path of the prolog's or epilog's cgroup beside the step's own; "" without cgroups."""
        return f"{os.path.dirname(step.cgroup)}/{moment.group}" if step.cgroup else ""

    def _full_path(self, moment: Moment, step: Step) -> str:
        return self._mount + self._group(moment, step) if step.cgroup else ""

    async def _run(self, moment: Moment, live: LiveStep, record: Mapping[str, object] | None = None) -> str:
        if moment.hook is None and not self._script(moment):
            return ""
        step = live.step
        variables = {**job_environment.for_job(step, moment.context, record), **job_environment.options(step)}
        group = self._full_path(moment, step)
        why = ""
        for part in (self._call_hooks, self._run_script):
            try:
                if group:
                    self._make_group(group)
                if group and moment.group == EPILOG.group:
                    _lift(tree.Group(os.path.dirname(group)), step)
                failed = await part(moment, live, variables)
            except OSError as error:
                failed = f"{moment.name}: {error.strerror}" + (f": {error.filename}" if error.filename else "")
            if failed:
                why = f"job {step.job_id}: {failed}"
                messages.tell("script-failed", why, job=step.job_id, uid=step.uid)
        return why

    def _make_group(self, path: str) -> None:
        """Make the cgroup and the job's cgroup above. Raises OSError."""
        job = tree.Group(os.path.dirname(path))
        try:
            job.make()
        except FileNotFoundError:  # another process has removed the parent cgroup
            delegation.make(self._config.cgroup_name, wanted_controllers(self._config))
            job.make()
        tree.Group(path).make()

    async def _call_hooks(self, moment: Moment, live: LiveStep, variables: dict[str, str]) -> str:
        if moment.hook is None:
            return ""
        step, call = live.step, moment.hook.call
        stack = [step.stack[place] for place in self._mentioned_hooks.places(step.stack, (call,))]
        if not stack:
            return ""
        trace = self._open_trace(live)
        environment = {**variables, **probe_variable.environment()}
        arguments = {
            "cgroup": self._full_path(moment, step),
            "spec": live.files.spec,
            "call": call,
            "plugins": [entry_as_list(entry) for entry in stack],
            "timeout": step.hook_timeout,
            "versions": self._config.spank_versions,
            "trace": FIRST_EXTRA if trace >= 0 else -1,
        }
        try:
            process = ReportingProcess(
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
        await process.end()
        if process.results:
            return process.results[-1]
        return f"{process.plugin_and_hook() or call}: {process.how_it_ended()}"

    def _open_trace(self, live: LiveStep) -> int:
        """Open the step's trace; -1 for none. A lost line of it drains no machine."""
        try:
            return live.files.append_trace() if self._config.trace else -1
        except OSError:
            return -1

    def _script(self, moment: Moment) -> str | None:
        """Return the path of the site's script, None for none."""
        path: str | None = getattr(self._config, moment.name)
        return path

    async def _run_script(self, moment: Moment, live: LiveStep, variables: dict[str, str]) -> str:
        path = self._script(moment)
        if not path:
            return ""
        started = now()
        why = await self._execute(moment, live.step, path, variables)
        trace = self._open_trace(live)
        if trace >= 0:
            Recorder(trace, "daemon").write(moment.script, started, rc=-1 if why else 0, note=why)
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
        process = ReportingProcess(_MODULE, arguments, environment=variables, seconds=seconds)
        await process.end()
        if process.results and process.status == NO_PROGRAM << 8:
            return process.results[-1]
        return f"{path}: {process.how_it_ended()}" if process.status else ""


def _lift(job: tree.Group, step: Step) -> None:
    """Remove the limits of a job whose steps have ended, because the epilog belongs to the site. Raises OSError.

    A failing epilog drains the machine. Neither the limits that the user asked for nor the memory that the steps left
    in the job may make it fail.
    """
    files = {**dict.fromkeys(_MEMORY, "max"), **shares.files(dict.fromkeys(step.shares, 0), {})}
    job.write({name: text for name, text in files.items() if job.has(name)})
