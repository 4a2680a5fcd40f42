"""The job's directory, below the user's home or XDG_STATE_HOME, which the nodes share where a site shares homes.

    epoch.N       who leads in epoch N, and where; made by link(2), so that of two who want to lead one does
    journal.N     what that leader keeps
    tenure        it writes here every two seconds; where nothing changes for fifteen, nobody leads any more
    orphan.N.R    rank R, which does not reach the root of epoch N, writes here every second

Its name follows from the cluster's secret: who sees a directory of this name sees that of this cluster. Nobody compares
clocks of two machines: a file is looked at again and again, and it has changed or not. Files are written in place and
opened anew for each look, by which NFS asks its server.

Run by the agent, the leader and the heir, as the user. All of it may wait as long as the disk's server does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from typing import NamedTuple

from nodectl.cluster.link import keys
from nodectl.cluster.mesh.roll import Addresses
from nodectl.cluster.mesh.words import BadWords, addresses_of, number
from nodectl.config import own_node
from nodectl.model.number import whole
from nodectl.wire import lean_json

LEASE = 15.0  # seconds without a change, after which nobody leads any more
RENEWAL = 2.0
SUPERSEDED = 3  # exit status of a leader that leads no more
_SIZE = 64  # bytes of a file that is written in place
_LARGEST = 1 << 16
_MOST = 1 << 31
_NAME = b"job directory"
_STALE = 86_400.0  # seconds, after which the directory of a cluster that was killed as a whole is removed
_OVER = "over"


class Epoch(NamedTuple):
    """`rank` is the root of the tree, beside the leader; `at` are its addresses."""

    number: int
    rank: int
    at: Addresses


class Claim(NamedTuple):
    """Of a node that misses the root: how many nodes it speaks for, and what changes with each second."""

    nodes: int
    text: bytes


class JobDirectory:
    """Of one cluster. Methods raise OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._count = 0

    @classmethod
    def of(cls, job: int, secret: bytes) -> JobDirectory:
        """That of a job, by its cluster's secret, which the name does not tell."""
        name = keys.derived(secret, _NAME, b"").hex()[:32]
        return cls(f"{own_node.state_dir()}/cluster/{job}.{name}")

    def make(self, at: Addresses) -> None:
        """By the agent of rank 0, which leads first. What others have left long ago is removed."""
        above = os.path.dirname(self.path)
        os.makedirs(above, mode=0o700, exist_ok=True)
        with contextlib.suppress(OSError):
            _sweep(above)
        os.mkdir(self.path, 0o700)
        self.take(Epoch(0, 0, at))

    @property
    def is_there(self) -> bool:
        """Whether this machine sees it."""
        return os.path.exists(self._epoch(0))

    def remove(self) -> None:
        """The cluster ends."""
        shutil.rmtree(self.path, ignore_errors=True)

    def journal(self, epoch: int) -> str:
        """The path of what this epoch's leader keeps."""
        return f"{self.path}/journal.{epoch}"

    def forget_before(self, epoch: int) -> None:
        """Files of earlier epochs, but for who led in them: it is by these that a late one sees that it is late."""
        for name in os.listdir(self.path):
            kind, _, rest = name.partition(".")
            past = whole(rest.partition(".")[0], _MOST)
            if kind in ("journal", "orphan") and past is not None and past < epoch:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}/{name}")

    # Who leads.

    def _epoch(self, epoch: int) -> str:
        return f"{self.path}/epoch.{epoch}"

    def take(self, wanted: Epoch) -> Epoch:
        """Begins an epoch; the answer is who has begun it."""
        new = f"{self._epoch(wanted.number)}.{wanted.rank}.new"
        words = {"epoch": wanted.number, "rank": wanted.rank, "at": [list(one) for one in wanted.at]}
        with open(new, "wb") as file:
            file.write(lean_json.dumps(words).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, self._epoch(wanted.number))
        except FileExistsError:
            pass  # by another one; or by us, whose server has answered the second time only
        finally:
            os.unlink(new)
        made = self.epoch(wanted.number)
        if made is None:
            raise FileNotFoundError(2, os.strerror(2), self._epoch(wanted.number))
        return made

    def epoch(self, epoch: int) -> Epoch | None:
        """Who leads in it, None where it has not begun."""
        text = _read(self._epoch(epoch))
        if text is None:
            return None
        try:
            words = lean_json.load_object(text)
            return Epoch(number(words, "epoch"), number(words, "rank"), addresses_of(words.get("at")))
        except (lean_json.BadJson, BadWords) as error:
            raise OSError(5, str(error), self._epoch(epoch)) from None

    def after(self, epoch: int) -> Epoch | None:
        """The latest one behind this one. The directory is listed, for which NFS asks its server: that a file was not
        there its client believes for up to a minute.
        """
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return None
        numbers = [whole(name.removeprefix("epoch."), _MOST) for name in names if name.startswith("epoch.")]
        latest = max((found for found in numbers if found is not None), default=epoch)
        return self.epoch(latest) if latest > epoch else None

    # Whether anybody does.

    def renew(self, epoch: int, *, over: bool = False) -> None:
        """Its leader leads still, or leads no more."""
        self._count += 1
        _write(f"{self.path}/tenure", f"{epoch} {_OVER if over else self._count}")

    def tenure(self, epoch: int) -> tuple[bytes, bool]:
        """What changes while somebody leads; whether the leader of this epoch has said that it leads no more."""
        text = _read(f"{self.path}/tenure") or b""
        return text, text.split() == [b"%d" % epoch, _OVER.encode()]

    def claim(self, epoch: int, rank: int, nodes: int) -> None:
        """This rank misses the root, and so many nodes with it."""
        self._count += 1
        _write(self._claim(epoch, rank), f"{nodes} {self._count}")

    def withdraw(self, epoch: int, rank: int) -> None:
        """It misses it no more."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._claim(epoch, rank))

    def _claim(self, epoch: int, rank: int) -> str:
        return f"{self.path}/orphan.{epoch}.{rank}"

    def claims(self, epoch: int) -> Mapping[int, Claim]:
        """Of all who miss it, by rank."""
        found = {}
        for name in os.listdir(self.path):
            kind, _, rest = name.partition(".")
            past, _, rank = rest.partition(".")
            if kind == "orphan" and past == str(epoch) and (named := whole(rank, _MOST)) is not None:
                text = _read(f"{self.path}/{name}") or b""
                nodes = whole((text.split() or [b""])[0].decode("ascii", "replace"), _MOST)
                found[named] = Claim(nodes or 1, text)
        return found


class Still:
    """For how long something has not changed, by our own clock."""

    def __init__(self) -> None:
        self._known: bytes | None = None
        self._since = 0.0

    def seconds(self, text: bytes, now: float) -> float:
        """Now that it is this."""
        if text != self._known:
            self._known, self._since = text, now
        return now - self._since


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.pwrite(fd, f"{text:<{_SIZE - 1}}\n".encode("ascii"), 0)
    finally:
        os.close(fd)


def _read(path: str) -> bytes | None:
    """None where there is nothing."""
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST)
    except FileNotFoundError:
        return None


def _sweep(above: str) -> None:
    """A leader writes every two seconds: whose tenure is a day old has ended, whatever the clocks say."""
    for name in os.listdir(above):
        path = f"{above}/{name}"
        tenure = f"{path}/tenure"
        try:
            changed = os.lstat(tenure if os.path.lexists(tenure) else path).st_mtime
        except OSError:
            continue  # it has gone
        if time.time() - changed > _STALE:
            shutil.rmtree(path, ignore_errors=True)
