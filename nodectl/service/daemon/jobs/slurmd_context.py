"""The daemon's side of SPANK's slurmd context: if a plugin has hooks for it, a process with the daemon's lifetime.

A failure in that process does not end the daemon, with one exception: when a required plugin fails at the start, the
daemon does not start, as slurmd would not. A process that dies is started again only with the next daemon.
"""

import asyncio
import contextlib
import os

from nodectl import messages
from nodectl.model.config import Config
from nodectl.model.launch_order import SLURMD_HOOKS
from nodectl.model.plugstack_entry import Entry, entry_as_list
from nodectl.service.daemon.processes.reporting_process import GRACE, ReportingProcess
from nodectl.spank import plugstack, preload, probe_variable
from nodectl.spank.mentioned_hooks import MentionedHooks
from nodectl.spank.reporter import SHUTDOWN

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class SlurmdRefused(Exception):
    """A required plugin does not let the daemon start; str() is a single line with the names of plugin and hook."""


class SlurmdContext:
    """The process for the slurmd context. Without slurmd hooks there is no process, and the methods do nothing."""

    def __init__(self, config: Config) -> None:
        self._seconds = config.spank_hook_timeout
        self._config = config
        self._entries: list[Entry] = []
        self._process: ReportingProcess | None = None
        try:
            stack = plugstack.read(config.plugstack_config, config.plugin_dir).entries
        except plugstack.PlugstackError as error:
            _log(f"{error}; no plugin is told of the service's start")
            return
        if os.geteuid() == 0:  # they are root's
            self._entries = [
                stack[place] for place in MentionedHooks().places(stack, [hook.call for hook in SLURMD_HOOKS])
            ]

    def begin(self) -> None:
        """Execute the process, without waiting. Raises OSError."""
        if not self._entries:
            return
        arguments = {
            "plugins": [entry_as_list(entry) for entry in self._entries],
            "timeout": self._seconds,
            "versions": self._config.spank_versions,
            "steps": os.path.join(self._config.runtime_dir, "steps"),
        }
        self._process = ReportingProcess(
            "nodectl.spank.slurmd_context",
            arguments,
            environment=preload.for_plugins(
                {**_ENVIRONMENT, **probe_variable.environment()}, (entry.path for entry in self._entries)
            ),
            seconds=self._seconds,
            grace=GRACE,
        )

    async def ready(self) -> None:
        """Wait for the plugins' init hooks. Raises SlurmdRefused.

        All of them together may take as long as a single hook may.
        """
        process = self._process
        if process is None:
            return
        try:
            await asyncio.wait_for(process.reported(), self._seconds + GRACE if self._seconds else None)
        except TimeoutError:
            process.time_out()
        if not process.results:
            await process.end()
            self._process = None
            why = f"{process.plugin_and_hook() or 'slurmd context'}: {process.how_it_ended()}"
            if process.call and self._entries[process.stack_place].required:
                raise SlurmdRefused(why)
            _log(f"optional {why}; no plugin is told of the service's end")
            return
        if process.results[0]:
            raise SlurmdRefused(process.results[0])
        process.allow_silence(0)
        process.on_end = self._lost

    def _lost(self) -> None:
        """Log the death of the process between start and end."""
        assert self._process is not None  # noqa: S101  # for mypy: this is its own call
        _log(f"slurmd context: {self._process.how_it_ended()}")
        self._process = None

    async def end(self) -> None:
        """Call slurmd_exit, because the daemon ends. A failure is a line in the log."""
        process = self._process
        if process is None:
            return
        process.on_end = None
        process.allow_silence(self._seconds)
        with contextlib.suppress(OSError):  # it has gone
            process.send(SHUTDOWN)
        await process.end()
        why = (
            process.results[1]
            if len(process.results) > 1
            else f"{process.plugin_and_hook() or 'slurmd context'}: {process.how_it_ended()}"
        )
        if why:
            _log(why)


def _log(text: str) -> None:
    messages.tell("slurmd-context", text)
