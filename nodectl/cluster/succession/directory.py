"""The job's directory, below the user's home or XDG_STATE_HOME, shared by the nodes where a site shares homes.

    epoch.N       the leader of epoch N, and its address; made by link(2), so that only one of two contenders succeeds
    journal.N     the journal of that leader
    tenure        the leader writes here every two seconds; without a change for fifteen seconds, there is no leader any
    more
    orphan.N.R    rank R, which cannot reach the root of epoch N, writes here every second

The directory's name follows from the cluster's secret: a node that sees a directory of this name sees that of this
cluster. No node compares the clocks of two machines: a file is read again and again, and has changed or not. Files are
written in place and opened anew for each reading, so that NFS asks its server.

Run by the agent, the leader and the successor, as the user. Every call may wait as long as the disk's server does.
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
from nodectl.model.config import own_node
from nodectl.model.number import whole
from nodectl.model.wire import lean_json

LEASE = 15.0  # seconds without a change, after which there is no leader any more
RENEWAL = 2.0
SUPERSEDED = 3  # exit status of a leader that leads no more
_SIZE = 64  # bytes of a file that is written in place
_LARGEST = 1 << 16
_MOST = 1 << 31
_NAME = b"job directory"
_STALE = 86_400.0  # seconds, after which the directory of a killed cluster is removed
_OVER = "over"


class Epoch(NamedTuple):
    """An epoch of leadership. `rank` is the root of the tree, beside the leader; `at` are the root's addresses."""

    number: int
    rank: int
    at: Addresses


class Claim(NamedTuple):
    """A claim of a node without the root: the number of nodes represented, and a text with a new value every second."""

    nodes: int
    text: bytes


class JobDirectory:
    """The directory of a cluster. Methods raise OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._count = 0

    @classmethod
    def of(cls, job: int, secret: bytes) -> JobDirectory:
        """Return the directory of a job, named after the cluster's secret without revealing the secret."""
        name = keys.derived(secret, _NAME).hex()[:32]
        return cls(f"{own_node.state_dir()}/cluster/{job}.{name}")

    def make(self, at: Addresses) -> None:
        """Make the directory, in the agent of rank 0, the first leader. Remove long abandoned directories."""
        above = os.path.dirname(self.path)
        os.makedirs(above, mode=0o700, exist_ok=True)
        with contextlib.suppress(OSError):
            _sweep(above)
        os.mkdir(self.path, 0o700)
        self.take(Epoch(0, 0, at))

    @property
    def is_there(self) -> bool:
        """True if this machine sees the directory."""
        return os.path.exists(self._epoch(0))

    def remove(self) -> None:
        """Remove the directory at the end of the cluster."""
        shutil.rmtree(self.path, ignore_errors=True)

    def journal(self, epoch: int) -> str:
        """Return the path of the epoch's journal."""
        return f"{self.path}/journal.{epoch}"

    def forget_before(self, epoch: int) -> None:
        """Remove the files of earlier epochs, except epoch.N.

        By epoch.N a late leader sees that it is late.
        """
        for name in os.listdir(self.path):
            kind, _, rest = name.partition(".")
            past = whole(rest.partition(".")[0], _MOST)
            if kind in ("journal", "orphan") and past is not None and past < epoch:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}/{name}")

    # The leader of an epoch.

    def _epoch(self, epoch: int) -> str:
        return f"{self.path}/epoch.{epoch}"

    def take(self, wanted: Epoch) -> Epoch:
        """Begin an epoch; return the epoch as actually begun, possibly by another node."""
        new = f"{self._epoch(wanted.number)}.{wanted.rank}.new"
        words = {"epoch": wanted.number, "rank": wanted.rank, "at": [list(one) for one in wanted.at]}
        with open(new, "wb") as file:
            file.write(lean_json.dumps(words).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, self._epoch(wanted.number))
        except FileExistsError:
            pass  # by another node; or by us: the server answered the second attempt only
        finally:
            os.unlink(new)
        made = self.epoch(wanted.number)
        if made is None:
            raise FileNotFoundError(2, os.strerror(2), self._epoch(wanted.number))
        return made

    def epoch(self, epoch: int) -> Epoch | None:
        """Return the epoch of a number; None if the epoch has not begun."""
        text = _read(self._epoch(epoch))
        if text is None:
            return None
        try:
            words = lean_json.load_object(text)
            return Epoch(number(words, "epoch"), number(words, "rank"), addresses_of(words.get("at")))
        except (lean_json.BadJson, BadWords) as error:
            raise OSError(5, str(error), self._epoch(epoch)) from None

    def after(self, epoch: int) -> Epoch | None:
        """Return the latest epoch after `epoch`, None where there is none.

        The directory is listed, for which NFS asks its server: its client remembers for up to a minute that a file was
        missing.
        """
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return None
        numbers = [whole(name.removeprefix("epoch."), _MOST) for name in names if name.startswith("epoch.")]
        latest = max((found for found in numbers if found is not None), default=epoch)
        return self.epoch(latest) if latest > epoch else None

    # Whether there is a leader.

    def renew(self, epoch: int, *, over: bool = False) -> None:
        """Renew the leader's tenure in this epoch, or record the tenure's end."""
        self._count += 1
        _write(f"{self.path}/tenure", f"{epoch} {_OVER if over else self._count}")

    def tenure(self, epoch: int) -> tuple[bytes, bool]:
        """Return the tenure file's content, and whether the leader of this epoch has ended.

        The content changes as long as there is a leader.
        """
        text = _read(f"{self.path}/tenure") or b""
        return text, text.split() == [b"%d" % epoch, _OVER.encode()]

    def claim(self, epoch: int, rank: int, nodes: int) -> None:
        """Record a claim: this rank misses the root, and speaks for `nodes` nodes."""
        self._count += 1
        _write(self._claim(epoch, rank), f"{nodes} {self._count}")

    def withdraw(self, epoch: int, rank: int) -> None:
        """Remove the claim of this rank."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._claim(epoch, rank))

    def _claim(self, epoch: int, rank: int) -> str:
        return f"{self.path}/orphan.{epoch}.{rank}"

    def claims(self, epoch: int) -> Mapping[int, Claim]:
        """Return the claims of all ranks without the root, by rank."""
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
    """A stopwatch for an unchanged text, on this machine's clock."""

    def __init__(self) -> None:
        self._known: bytes | None = None
        self._since = 0.0

    def seconds(self, text: bytes, now: float) -> float:
        """Return the time since `text` last changed."""
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
    """Return the content of a file, None where the file is missing."""
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST)
    except FileNotFoundError:
        return None


def _sweep(above: str) -> None:
    """Remove directories of clusters killed long ago.

    A leader writes every two seconds: a tenure a day old is over, whatever the clocks say.
    """
    for name in os.listdir(above):
        path = f"{above}/{name}"
        tenure = f"{path}/tenure"
        try:
            changed = os.lstat(tenure if os.path.lexists(tenure) else path).st_mtime
        except OSError:
            continue  # the directory has gone
        if time.time() - changed > _STALE:
            shutil.rmtree(path, ignore_errors=True)
