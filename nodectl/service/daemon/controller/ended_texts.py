"""The texts of ended batch jobs, kept for `nodectl resubmit`, and which of them the store drops. In the daemon.

Texts may be large, and users make as many as they like. So the latest of each user are kept, up to a number and a size.
"""

from collections import OrderedDict
from collections.abc import Iterator


class EndedTexts:
    """The texts of ended jobs, by user: `most` texts with `most_bytes` of a single user."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._sizes: dict[int, OrderedDict[int, int]] = {}  # by user: bytes of each text, the oldest first
        self._bytes: dict[int, int] = {}  # by user

    def add(self, job: int, uid: int, size: int) -> Iterator[int]:
        """Count the text of an ended job or array. Yield the jobs whose texts the user has no room for any more."""
        sizes = self._sizes.setdefault(uid, OrderedDict())
        sizes[job] = size
        self._bytes[uid] = self._bytes.get(uid, 0) + size
        while self._bytes[uid] > self._most_bytes or len(sizes) > self._most:
            oldest, less = sizes.popitem(last=False)
            self._bytes[uid] -= less
            yield oldest
