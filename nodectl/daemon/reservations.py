"""Job ids that clients have drawn for the steps that they are about to ask for: whose each is."""

_MOST = 1024  # of one user; who wants more loses the oldest, and nobody else loses any


class Reservations:
    """Those of one node."""

    def __init__(self) -> None:
        self._jobs: dict[int, dict[int, None]] = {}  # by uid, the oldest first

    def add(self, uid: int, job: int) -> None:
        """The job is this user's."""
        own = self._jobs.setdefault(uid, {})
        if len(own) >= _MOST:
            del own[next(iter(own))]
        own[job] = None

    def take(self, uid: int, job: int) -> bool:
        """True when it was this user's; it is used up."""
        own = self._jobs.get(uid, {})
        if job not in own:
            return False
        del own[job]
        if not own:
            del self._jobs[uid]
        return True
