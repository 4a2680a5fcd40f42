"""Client side of the service: sessions, launches, private nodes, and the Python interface `import nodectl.client`.

Runs in the command, or in a program, as its user (docs/python.md). The command imports the modules one by one, and pays
nothing for the public names, which are imported on first use.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.client.api.aio import AsyncClient as AsyncClient
    from nodectl.client.api.aio import AsyncStep as AsyncStep
    from nodectl.client.api.client import Client as Client
    from nodectl.client.api.client import Step as Step
    from nodectl.client.api.errors import Busy as Busy
    from nodectl.client.api.errors import InvalidRequest as InvalidRequest
    from nodectl.client.api.errors import LaunchRefused as LaunchRefused
    from nodectl.client.api.errors import NodectlError as NodectlError
    from nodectl.client.api.errors import NoService as NoService
    from nodectl.client.api.errors import NotFound as NotFound
    from nodectl.client.api.errors import NotPermitted as NotPermitted
    from nodectl.client.api.errors import StepFailed as StepFailed
    from nodectl.client.api.errors import StepTimeout as StepTimeout
    from nodectl.client.api.executor import StepExecutor as StepExecutor
    from nodectl.client.api.executor import StepFuture as StepFuture
    from nodectl.client.api.executor import WorkerDied as WorkerDied
    from nodectl.client.api.keywords import JobOptions as JobOptions
    from nodectl.client.api.keywords import StepOptions as StepOptions
    from nodectl.client.api.streams import DEVNULL as DEVNULL
    from nodectl.client.api.streams import PIPE as PIPE
    from nodectl.client.api.streams import STDOUT as STDOUT
    from nodectl.client.api.values import JobInfo as JobInfo
    from nodectl.client.api.values import Result as Result
    from nodectl.client.api.values import StepInfo as StepInfo
    from nodectl.client.api.values import TaskResult as TaskResult
    from nodectl.client.api.values import TraceCall as TraceCall
    from nodectl.client.api.worker import RemoteError as RemoteError

_PUBLIC = {
    "aio": ("AsyncClient", "AsyncStep"),
    "client": ("Client", "Step"),
    "errors": (
        "Busy", "InvalidRequest", "LaunchRefused", "NoService", "NodectlError", "NotFound", "NotPermitted",
        "StepFailed", "StepTimeout",
    ),
    "executor": ("StepExecutor", "StepFuture", "WorkerDied"),
    "keywords": ("JobOptions", "StepOptions"),
    "streams": ("DEVNULL", "PIPE", "STDOUT"),
    "values": ("JobInfo", "Result", "StepInfo", "TaskResult", "TraceCall"),
    "worker": ("RemoteError",),
}  # fmt: skip
__all__ = sorted(name for names in _PUBLIC.values() for name in names)  # noqa: PLE0605  # a list of strings


def __getattr__(name: str) -> object:
    for module, names in _PUBLIC.items():
        if name in names:
            from importlib import import_module  # a program's, no command's

            return getattr(import_module(f"nodectl.client.api.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return [*globals(), *__all__]
