"""The watch of a job or step until its end, beside other things: for `nodectl log` and `nodectl wait`.

The service answers when the job changes, so a command can poll(2) the connection together with other descriptors. A
command which only watches does not keep a waiting job alive for the client that has to launch it.
"""

from typing import Any

from nodectl.client import waiting
from nodectl.client.session import Session
from nodectl.model.states import IN_QUEUE
from nodectl.model.step_number import step_name


class JobWatch:
    """A job, a task of an array, or an array, whose record is of a task that has not ended as long as there is one.

    Raises Failed, as all methods do.
    """

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.name = name
        self._seen = ""
        self.record: Any = session.call("ShowJob", job=name)["record"]

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, or all tasks of the array have."""
        return self.record["state"] not in IN_QUEUE

    @property
    def is_array(self) -> bool:
        """Whether the name is that of a whole array."""
        return str(self.record["array_job"]) == self.name

    def ask(self) -> None:
        """Ask the service for the next change. The session is readable when the answer comes."""
        self.session.ask("Await", job=self.record["job"], seen=self._seen, watch=True)

    def take(self) -> None:
        """Take the answer, waiting for it if need be, and look at the job. The service's successor answers at once."""
        self._seen = str(waiting.asked(self.session, job=self.record["job"], seen="", watch=True)["seen"])
        self.record = waiting.patiently(self.session, "ShowJob", job=self.name)["record"]

    def end(self) -> tuple[int, str]:
        """Return the exit status of an ended job, the highest of an array, and a line on a failure, "" for none.

        The status is never 0 for a job that did not complete.
        """
        if self.is_array:
            return waiting.end_of_array(self.session, int(self.record["array_job"]))
        status = waiting.exit_status_of(self.record)
        return status, waiting.how_it_failed(self.record, self.name) if status else ""


class StepWatch:
    """A step. Raises Failed, as all methods do."""

    def __init__(self, session: Session, job: int, step: int) -> None:
        self.session = session
        self.name = step_name(job, step)
        self.record: Any = session.call("Show", job=job, step=step)["record"]

    @property
    def is_over(self) -> bool:
        """Whether the step has ended."""
        return self.record.get("ended") is not None

    def ask(self) -> None:
        """Ask the service for the step's end. The session is readable when the answer comes."""
        self.session.ask("Wait", job=self.record["job"], step=self.record["step"])

    def take(self) -> None:
        """Take the answer, waiting for it if need be. The service's successor is asked again."""
        reply = waiting.patiently(self.session, "Wait", job=self.record["job"], step=self.record["step"])
        self.record = reply["record"]
