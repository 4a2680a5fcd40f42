"""The messages of a run called by srun's name: the beginnings of lines which scripts wait for.

Not imported otherwise: nodectl's own lines stand in `nodectl/client/watch.py`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.client.command import Failed

LINES = {
    "launched": "jobid {job}: nodes(1):`{node}', step {step}\nnodectl: launching StepId={step} on host {node}, "
    "{ntasks} tasks: {ranks}",
    "first": "First task exited {wait}s ago",
    "terminating": "Terminating StepId={step}",
    "states": "interrupt (one more within 1 sec to abort)",
    "sent": "sending Ctrl-C to StepId={step}",
    "ending": "sending Ctrl-C to StepId={step}\nnodectl: forcing job termination",
    "aborted": "Job step aborted: waiting for its tasks to end",
    "killing": "forcing job termination",
    "state": "StepId={step} {tasks}: {state}",
}
ALLOCATE, CREATE, SUBMIT = "Unable to allocate resources", "Unable to create step", "Batch job submission failed"
_NUMBERS = {"map_cpu": "0123456789", "mask_cpu": "0123456789abcdefABCDEF"}
_NOT_AVAILABLE = "Requested node configuration is not available"
_OF_NODES = (
    "--mem",
    "Invalid feature",
    "Invalid node name",
    "Only allocated",
    "Memory",
    "--nodes",
    "--ntasks",
    _NOT_AVAILABLE,
    "Requested nodes",
)


def said(text: str) -> str:
    """Return a message of the step, reworded where srun's users expect a different beginning."""
    error = "nodectl: error: "
    if text.startswith(f"{error}step ") and ": task epilog '" in text and text.endswith("was killed"):
        return f"{error}TaskEpilog failed status=9: {text[len(error) :]}"
    return text


def refusal(failed: "Failed", what: str) -> str:
    """Return the reason why `what` was refused.

    The text begins like Slurm's line where the machine lacks the resources asked for.
    """
    reason = _number(str(failed))
    if reason.startswith("--multi-prog: "):
        return f"Configuration file of the step is invalid: {reason}"
    if reason.startswith("--gres="):
        return f"{what}: Invalid generic resource: {reason}"
    if not failed.name or not reason.startswith(_OF_NODES):  # a name is the service's
        return reason
    known = reason.startswith((_NOT_AVAILABLE, "Requested nodes", "Invalid"))
    return f"{what}: {reason}" if known else f"{what}: {_NOT_AVAILABLE}: {reason}"


def _number(reason: str) -> str:
    """Return Slurm's message for a wrong number in a list of --cpu-bind, with the first wrong letter."""
    option, _, rest = reason.partition(": '")
    word, quote, _ = rest.partition("' is not a ")
    digits = _NUMBERS.get(option.removeprefix("--cpu-bind="))
    wrong = word.removeprefix("0x" if option.endswith("mask_cpu") else "").strip(digits) if digits and quote else ""
    return f"Failed to validate number: {word}, the offending character is {wrong[0]} ({reason})" if wrong else reason
