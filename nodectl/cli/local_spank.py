"""SPANK's local context: the plugins in the process of the command, as the user who runs it.

Hooks: init, the callbacks of the options the user gave, init_post_opt, local_user_init (the job exists, nothing is
launched), exit. A required plugin that fails here refuses the command.
"""

import os
import sys

from nodectl import messages
from nodectl.cli.options import ARGUMENT, BadOption, Option
from nodectl.cli.session import Failed
from nodectl.door import Door, Outcome
from nodectl.recorder import Recorder
from nodectl.spank import S_CTX_LOCAL
from nodectl.spank.handle import Spank
from nodectl.spank.stack import TRIAL, Stack, StackedPlugin, local_row, witness_if_tried
from nodectl.step import Step, entry_from_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nodectl.spank import SpankOption


class LocalStack:
    """The stack that `hello` describes, loaded and initialised. Raises Failed when a required plugin refuses."""

    def __init__(self, hello: "Mapping[str, object]", *, verbose: int, context: int = S_CTX_LOCAL) -> None:
        witness_if_tried()
        os.environ.pop(TRIAL, None)  # no business of the tasks'
        messages.listen(lambda line: print(line, file=sys.stderr), level=messages.INFO + min(verbose, 4))
        door = Door(Recorder(-1, "command"), None, 0, float(str(hello["hook_timeout"])), single_threaded=False)
        self._stack = Stack(door, Spank(context))
        entries = [
            entry_from_list([row[name] for name in ("path", "argv", "required", "origin", "missing")])
            for row in hello["stack"]  # type: ignore[attr-defined]
        ]
        self._require(self._stack.load(entries))
        self._call("slurm_spank_init")

    def _require(self, outcome: Outcome) -> None:
        if not outcome:
            raise Failed(outcome.why)

    def _call(self, hook: str) -> None:
        self._require(self._stack.call(hook, row=local_row(hook)))

    def options(self) -> list[Option]:
        """What the plugins offer, for the parser and the help. A name that two plugins offer is the first one's."""
        found: dict[str, Option] = {}
        for stacked in self._stack.plugins:
            for option in stacked.options.values():
                found.setdefault(
                    option.name,
                    Option(
                        option.name,
                        "",
                        option.arginfo or "",
                        option.usage,
                        self._taker(stacked, option),
                        has_arg=option.has_arg if 0 <= option.has_arg <= 2 else ARGUMENT,
                    ),
                )
        return list(found.values())

    def _taker(self, stacked: StackedPlugin, option: "SpankOption") -> "Callable[[str], object]":
        def take(value: str) -> None:
            outcome = self._stack.process_option(stacked, option, value, remote=False)
            if not outcome:
                raise BadOption(f"Invalid --{option.name} argument: {value}")

        return take

    def after_options(self) -> None:
        """init_post_opt."""
        self._call("slurm_spank_init_post_opt")

    def before_launch(self, request: "Mapping[str, object]", reserved: "Mapping[str, object]") -> None:
        """local_user_init, with the job that is about to be launched."""
        blank: dict[str, object] = dict.fromkeys(Step.FIELDS)
        self._stack.handle.step = Step(
            **{
                **blank,
                **{name: value for name, value in request.items() if name in Step.FIELDS},
                "job_id": reserved["job"],
                "step_id": reserved["step"],
                "uid": os.getuid(),
                "gid": os.getgid(),
                "gids": os.getgroups(),
                "allocation": 0,
                "cpu_masks": [],
            }
        )
        self._call("slurm_spank_local_user_init")

    def given(self) -> list[list[str]]:
        """The options the user gave, for the step: plugin, option, value."""
        return [
            [stacked.plugin.name, name, value or ""]
            for stacked in self._stack.plugins
            for name, value in stacked.given.items()
        ]

    def close(self) -> None:
        """exit: a failure is told, and costs nothing."""
        outcome = self._stack.call("slurm_spank_exit", row=local_row("slurm_spank_exit"))
        if not outcome:
            messages.error(outcome.why)
