"""The exceptions of the client, each with a reason and advice."""

from contextlib import contextmanager
from typing import TYPE_CHECKING

from nodectl.client.command import BadOption, Failed
from nodectl.client.service_start import start_command
from nodectl.model.wire.names import NODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodectl.client.api.values import Result


class NodectlError(Exception):
    """An error of the client. str() is the reason, in a single line.

    `advice` says how to solve the problem, "" where unknown; `name` is the protocol's error, such as org.nodectl.Busy.
    """

    advice = ""

    def __init__(self, reason: str, *, name: str = "", advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.name = name
        self.advice = advice or type(self).advice


class NoService(NodectlError, ConnectionError):
    """No service answers, or the service went away before answering."""

    def __init__(self, reason: str, *, name: str = "", advice: str = "") -> None:
        super().__init__(reason, name=name, advice=advice or f"start it with `{start_command()}`, as root")


class InvalidRequest(NodectlError, ValueError):
    """The request makes no sense on this node."""

    advice = "change the option that is named; `nodectl run --help` explains each, `nodectl doctor` what the node has"


class NotPermitted(NodectlError, PermissionError):
    """This user is not permitted to make the request."""

    advice = "ask as the owner of the job, as root, or as a member of the admin group"


class NotFound(NodectlError, LookupError):
    """No such job or step: neither existing nor remembered."""

    advice = "`nodectl queue` and `nodectl ps --ended` list what is known"


class LaunchRefused(NodectlError):
    """A plugin refused the launch, or the machine failed to start the step."""

    advice = "the reason names who refused; the service's log may say more (journalctl -u nodectld)"


class Busy(NodectlError):
    """The resources asked for are not free now."""

    advice = "ask again later, or without `immediate`, to wait for a turn"


class StepFailed(NodectlError):
    """A step run with check=True failed; `result` is the step's result."""

    advice = "`result` has the tasks' exit codes and what they wrote; `nodectl show JOB.STEP` tells more"

    def __init__(self, result: "Result") -> None:
        super().__init__(f"step {result.name}: {result.state}: {result.reason or f'exit status {result.exit_status}'}")
        self.result = result


class StepTimeout(NodectlError, TimeoutError):
    """Time was up before the step had ended."""

    advice = "wait longer, or end the step with cancel()"


NO_SERVICE = "nodectl.client.NoService"  # the name of what the service did not answer
_BY_NAME: "dict[str, type[NodectlError]]" = {
    f"{NODE}.{name}": kind
    for name, kind in {
        "InvalidRequest": InvalidRequest,
        "NotPermitted": NotPermitted,
        "NoSuchStep": NotFound,
        "NoSuchJob": NotFound,
        "LaunchRefused": LaunchRefused,
        "Busy": Busy,
    }.items()
} | {NO_SERVICE: NoService}


def public(error: "Failed | BadOption") -> NodectlError:
    """Return the public error for an error of the command. Without a name, the service was not asked."""
    if isinstance(error, BadOption) or not error.name:
        return InvalidRequest(str(error))
    return _BY_NAME.get(error.name, NodectlError)(str(error), name=error.name)


def of_connection(failed: Failed) -> Failed:
    """Return the error of a session, with the name NO_SERVICE where there is no name: no service answered."""
    failed.name = failed.name or NO_SERVICE
    return failed


@contextmanager
def translated() -> "Iterator[None]":
    """Raise the command's errors as the public errors."""
    try:
        yield
    except (Failed, BadOption) as error:
        raise public(error) from None
