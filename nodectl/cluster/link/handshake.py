"""The first bytes of a connection: each side proves knowledge of the secret. No I/O; the random bytes are given.

    caller     hello: name and version of the protocol, 32 random bytes
    answerer   hello
    caller     proof: of its role and both hellos
    answerer   proof: of its role and both hellos

The answerer sends nothing that depends on the secret before the caller's proof is right, and a proof serves for one
role of one conversation only: an attacker cannot get a proof for one side by asking the other. The keys of both
directions come from the secret and both hellos.
"""

from nodectl.cluster.link import keys

VERSION = 1
NONCE = 32
_NAME = b"nodectl link "
_HELLO = len(_NAME) + 4 + 1 + NONCE
_CALLER, _ANSWERER = b"proof of caller", b"proof of answer"
_FROM_CALLER, _FROM_ANSWERER = b"frames of caller", b"frames of answer"


class Refused(Exception):
    """A failed handshake: the far side speaks another protocol or lacks the secret; str() is a single line."""


def hello(nonce: bytes, version: int = VERSION) -> bytes:
    """Return the first bytes of either side."""
    return b"%b%04d\n%b" % (_NAME, version, nonce)


class Handshake:
    """A side of a handshake.

    `done` is true when the far side is proven. Then the keys are set, and `rest` has the bytes received after the
    handshake.
    """

    __slots__ = ("_calls", "_came", "_ours", "_secret", "_transcript", "done", "receiving", "rest", "sending")

    def __init__(self, secret: bytes, nonce: bytes, *, calls: bool) -> None:
        self._secret = secret
        self._calls = calls
        self._ours = hello(nonce)
        self._came = b""
        self._transcript = b""
        self.done = False
        self.sending = b""
        self.receiving = b""
        self.rest = b""

    def begin(self) -> bytes:
        """Return the bytes to send before any have come."""
        return self._ours if self._calls else b""

    def feed(self, data: bytes) -> bytes:
        """Handle received bytes; return the bytes to send now. Raises Refused."""
        self._came += data
        answer = b""
        if not self._transcript:
            _check_name(self._came)
            if len(self._came) < _HELLO:
                return b""
            answer = self._meet(self._came[:_HELLO])
            self._came = self._came[_HELLO:]
        if len(self._came) < keys.PROOF:
            return answer
        if not self._calls and len(self._came) > keys.PROOF:
            raise Refused("more was sent than a proof before the answer to it")
        return answer + self._believe(self._came[: keys.PROOF])

    def _meet(self, theirs: bytes) -> bytes:
        if theirs == self._ours:
            raise Refused("our own words came back")
        self._transcript = self._ours + theirs if self._calls else theirs + self._ours
        return self._derived(_CALLER) if self._calls else self._ours

    def _believe(self, proof: bytes) -> bytes:
        if not keys.are_same(proof, self._derived(_ANSWERER if self._calls else _CALLER)):
            raise Refused("the other side does not have this cluster's secret")
        ours, theirs = (_FROM_CALLER, _FROM_ANSWERER) if self._calls else (_FROM_ANSWERER, _FROM_CALLER)
        self.sending, self.receiving = self._derived(ours), self._derived(theirs)
        self.rest = self._came[keys.PROOF :]
        self._came = b""
        self.done = True
        return b"" if self._calls else self._derived(_ANSWERER)

    def _derived(self, purpose: bytes) -> bytes:
        return keys.derived(self._secret, purpose, self._transcript)


def _check_name(came: bytes) -> None:
    """Check the protocol's name and version. Raises Refused as soon as a mismatch is certain."""
    line = came[: _HELLO - NONCE]
    if not line.startswith(_NAME[: len(line)]):
        raise Refused("the other side does not speak as a nodectl cluster does")
    if len(line) < _HELLO - NONCE:
        return
    version = line[len(_NAME) : -1]
    if not version.isdigit() or line[-1:] != b"\n":
        raise Refused("the other side does not speak as a nodectl cluster does")
    if int(version) != VERSION:
        raise Refused(f"the other side speaks version {int(version)} of the protocol, this one version {VERSION}")
