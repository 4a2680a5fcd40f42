"""Jobs' and steps' numbers that clients have drawn for what they are about to ask for: whose each is."""

_MOST = 1024  # of one user; who wants more is given the oldest anew, and nobody else loses any


class ReservedNumbers:
    """Those of one node."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[tuple[int, int], None]] = {}  # by uid, the oldest first

    def oldest_job_if_full(self, uid: int) -> int:
        """The oldest job of a user who has as many numbers as anybody may: ids are not used up by who does not use
        them. 0 for others.
        """
        own = self._steps.get(uid, {})
        if len(own) < _MOST:
            return 0
        job, step = next(iter(own))
        del own[job, step]
        return 0 if step else job

    def add(self, uid: int, job: int, step: int) -> None:
        """The step is this user's."""
        own = self._steps.setdefault(uid, {})
        if len(own) >= _MOST:
            del own[next(iter(own))]
        own[job, step] = None

    def take(self, uid: int, job: int, step: int) -> bool:
        """True when it was this user's; it is used up."""
        own = self._steps.get(uid, {})
        if (job, step) not in own:
            return False
        del own[job, step]
        if not own:
            del self._steps[uid]
        return True
