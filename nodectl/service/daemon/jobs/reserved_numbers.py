"""The numbers of jobs and steps reserved by clients for a launch, by user."""

NEW_JOB = -1  # in place of a step's number, which may be 0 in an existing job
_MOST = 1024  # of one user; a user who wants more gets the oldest number again, no other user loses any


class ReservedNumbers:
    """The reserved numbers of the node."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[tuple[int, int], None]] = {}  # by uid, the oldest first

    def oldest_job_if_full(self, uid: int) -> int:
        """Return, and forget, the oldest job number of a user at the limit of reservations; 0 for other users.

        So a user who only reserves does not use up the ids.
        """
        own = self._steps.get(uid, {})
        if len(own) < _MOST:
            return 0
        job, step = next(iter(own))
        del own[job, step]
        return job if step == NEW_JOB else 0

    def add(self, uid: int, job: int, step: int) -> None:
        """Reserve the number for this user. `step` is NEW_JOB for the number of a job."""
        own = self._steps.setdefault(uid, {})
        if len(own) >= _MOST:
            del own[next(iter(own))]
        own[job, step] = None

    def has(self, job: int) -> bool:
        """Return True where any user has a number of this job."""
        return any(number[0] == job for own in self._steps.values() for number in own)

    def take(self, uid: int, job: int, step: int) -> bool:
        """Remove the number. Return True when this user had reserved the number."""
        own = self._steps.get(uid, {})
        if (job, step) not in own:
            return False
        del own[job, step]
        if not own:
            del self._steps[uid]
        return True
