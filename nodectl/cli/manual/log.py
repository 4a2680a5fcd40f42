"""The page about the service's log: the fields, and every kind of line."""

from collections.abc import Iterator

from nodectl.cli.manual import prose
from nodectl.cli.manual.document import Block, Heading, Page, Paragraph, Terms
from nodectl.kernel.log.table import ERROR, MESSAGES, WARNING

_ABOUT = """
Under systemd the lines of nodectl's service are in the journal, with fields beside their text:

    journalctl -u nodectld
    journalctl NODECTL_JOB=7
    journalctl USER_ID=1000 NODECTL_MESSAGE=step-ended

No process waits for the journal: lines that it does not take are lost, and counted. Elsewhere the same lines are plain
text on the service's stderr.
"""
_FIELDS = (
    ("`NODECTL_JOB`", "The job that the line is about, as 7."),
    ("`NODECTL_STEP`", "The step, as 7.0."),
    ("`USER_ID`", "The number of that step's, or job's, user."),
    ("`NODECTL_MESSAGE`", "The name of this kind of line, as below."),
    ("`MESSAGE_ID`", "The same as a number, as journals have it."),
    ("`PRIORITY`", "3 for errors, 4 for warnings, 6 for the rest."),
)
_WEIGHTS = {ERROR: "Error. ", WARNING: "Warning. "}


def page() -> Page:
    """Return the page `nodectl-log`(7)."""
    return Page("nodectl-log", 7, "the log of nodectl's service", list(_blocks()), ("nodectl-daemon(1)",))


def _blocks() -> Iterator[Block]:
    yield Heading("Description")
    yield from prose.blocks(_ABOUT)
    yield Heading("Fields")
    yield Terms(_FIELDS)
    yield Heading("Messages")
    yield Paragraph("Names and numbers do not change from release to release.")
    yield Terms([
        (f"`{name}`", f"{_WEIGHTS.get(weight, '')}{meaning}{f' {remedy}' if remedy else ''} MESSAGE_ID: `{number}`.")
        for name, number, weight, meaning, remedy in MESSAGES
    ])  # fmt: skip
