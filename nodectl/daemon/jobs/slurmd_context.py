"""The daemon's side of SPANK's slurmd context: one process for as long as the daemon lives, if any plugin wants it.

What happens there never takes the daemon along, but for one thing: a required plugin that fails at the start, which
refuses the daemon's start as it would a slurmd's. A process that is killed is not started again before the daemon is.
"""

import asyncio
import contextlib
import os
import sys

from nodectl.config import Config
from nodectl.daemon.processes.reporting_process import GRACE, Helper
from nodectl.model.launch_order import SLURMD_HOOKS
from nodectl.model.plugstack_entry import Entry, entry_as_list
from nodectl.spank import plugstack, preload, probe_variable
from nodectl.spank.mentioned_hooks import MentionedHooks
from nodectl.spank.slurmd_context import SHUTDOWN

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class SlurmdRefused(Exception):
    """A required plugin does not let the daemon start; str() is one line that names it and its hook."""


class SlurmdContext:
    """The process, or its absence."""

    def __init__(self, config: Config) -> None:
        self._seconds = config.spank_hook_timeout
        self._config = config
        self._entries: list[Entry] = []
        self._helper: Helper | None = None
        try:
            stack = plugstack.read(config.plugstack_config, config.plugin_dir).entries
        except plugstack.PlugstackError as error:
            _log(f"{error}; no plugin is told of the service's start")
            return
        self._entries = [stack[place] for place in MentionedHooks().places(stack, SLURMD_HOOKS)]

    def begin(self) -> None:
        """Executes the process, without waiting for it. Raises OSError."""
        if not self._entries:
            return
        arguments = {
            "plugins": [entry_as_list(entry) for entry in self._entries],
            "timeout": self._seconds,
            "versions": self._config.spank_versions,
            "steps": os.path.join(self._config.runtime_dir, "steps"),
        }
        self._helper = Helper(
            "nodectl.spank.slurmd_context",
            arguments,
            environment=preload.for_plugins(
                {**_ENVIRONMENT, **probe_variable.environment()}, (entry.path for entry in self._entries)
            ),
            seconds=self._seconds,
            grace=GRACE,
        )

    async def ready(self) -> None:
        """Waits for the plugins' init hooks, all together no longer than one may take. Raises SlurmdRefused."""
        helper = self._helper
        if helper is None:
            return
        try:
            await asyncio.wait_for(helper.word(), self._seconds + GRACE if self._seconds else None)
        except TimeoutError:
            helper.overrun()
        if not helper.said:
            await helper.end()
            self._helper = None
            why = f"{helper.place() or 'slurmd context'}: {helper.what_happened()}"
            if helper.call and self._entries[helper.nth].required:
                raise SlurmdRefused(why)
            _log(f"optional {why}; no plugin is told of the service's end")
            return
        if helper.said[0]:
            raise SlurmdRefused(helper.said[0])
        helper.may_be_silent(0)
        helper.on_end = self._lost

    def _lost(self) -> None:
        """It has died between start and end."""
        assert self._helper is not None  # noqa: S101  # for mypy: who else would call
        _log(f"slurmd context: {self._helper.what_happened()}")
        self._helper = None

    async def end(self) -> None:
        """The daemon ends in good order: slurmd_exit, whose failure costs a line in the log."""
        helper = self._helper
        if helper is None:
            return
        helper.on_end = None
        helper.may_be_silent(self._seconds)
        with contextlib.suppress(OSError):  # it has gone
            helper.tell(SHUTDOWN)
        await helper.end()
        why = (
            helper.said[1]
            if len(helper.said) > 1
            else f"{helper.place() or 'slurmd context'}: {helper.what_happened()}"
        )
        if why:
            _log(why)


def _log(text: str) -> None:
    print(f"nodectl daemon: {text}", file=sys.stderr)
