"""The process in which `nodectl spank try` runs a plugin in the allocator or the local context without a node.

It does what a command of that context does up to the launch, but does not launch. Exit status: 0, 1 when a plugin
refused, 255 when the plugin offers no such option.
"""

import os
import sys
from typing import TYPE_CHECKING

from nodectl.client.command import BadOption, Failed, complain
from nodectl.client.launch_request import make_request
from nodectl.client.local_spank import LocalStack
from nodectl.client.srun.options import parser
from nodectl.model.wire import lean_json
from nodectl.spank import S_CTX_LOCAL, preload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(given: str) -> int:
    """Run the plugins in the given context. Return the exit status.

    `given`: a JSON object with context, stack and hook_timeout in the node's form, run_options (of `nodectl run`),
    options (of plugins), argv.
    """
    preload.remove()
    told: Mapping[str, object] = lean_json.load_object(given.encode("ascii"))
    context = int(str(told["context"]))
    local = None
    try:
        local = LocalStack(told, verbose=0, context=context)
        local.presets()
        options: Sequence[str] = told["options"]  # type: ignore[assignment]  # our own caller's words
        if context != S_CTX_LOCAL:
            options = [word for word in options if _offered(local, word)]
        words = [*told["run_options"], *options, "--", *told["argv"]]  # type: ignore[misc]
        parsed = parser(local.options()).parse(words)
        local.after_options()
        if context == S_CTX_LOCAL:
            local.before_launch({**make_request(parsed), "environment": {}}, {"job": 1, "step": 0})
    except (Failed, BadOption) as error:
        complain(str(error))
        return error.status
    finally:
        if local is not None:
            local.close()
    return 0


def _offered(local: LocalStack, word: str) -> bool:
    """Return True for an option of this context; the allocator context, for example, ignores a table spank_options."""
    name = word.removeprefix("--").partition("=")[0]
    if any(option.long.startswith(name) for option in local.options()):
        return True
    print(f"nodectl: --{name} is not offered in this context", file=sys.stderr)
    return False


def command(given: str) -> None:
    """Run `main` as the whole process, and exit with the status from `main`."""
    status = 1
    try:
        status = main(given)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # the top of a process
        sys.excepthook(*sys.exc_info())
    os._exit(status)
