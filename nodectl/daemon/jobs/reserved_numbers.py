"""Numbers of jobs and steps that clients have reserved for a launch, and which user has which."""

NEW_JOB = -1  # in place of a step's number, which may be 0 in a job that is there
_MOST = 1024  # of one user, who is given the oldest again when they want more; other users lose none


class ReservedNumbers:
    """The reserved numbers of one node."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[tuple[int, int], None]] = {}  # by uid, the oldest first

    def oldest_job_if_full(self, uid: int) -> int:
        """The oldest job number of a user who has as many as one user may have, so that a user who only reserves does
        not use up the ids. 0 for other users.
        """
        own = self._steps.get(uid, {})
        if len(own) < _MOST:
            return 0
        job, step = next(iter(own))
        del own[job, step]
        return job if step == NEW_JOB else 0

    def add(self, uid: int, job: int, step: int) -> None:
        """Reserves the number for this user. `step` is NEW_JOB where it is the job's."""
        own = self._steps.setdefault(uid, {})
        if len(own) >= _MOST:
            del own[next(iter(own))]
        own[job, step] = None

    def has(self, job: int) -> bool:
        """Whether somebody has a number of this job."""
        return any(number[0] == job for own in self._steps.values() for number in own)

    def take(self, uid: int, job: int, step: int) -> bool:
        """Uses the number up. True when this user had it."""
        own = self._steps.get(uid, {})
        if (job, step) not in own:
            return False
        del own[job, step]
        if not own:
            del self._steps[uid]
        return True
