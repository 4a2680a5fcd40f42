"""TLS 1.3 between two members of a cluster, without I/O.

    caller     hello, with the name of the server
    answerer   hello, certificate, proof of the private key
    caller     certificate, proof of the private key

The name follows from the secret, the epoch and the version of the protocol. The answerer refuses a caller with another
name before it computes anything for the caller. The name is no proof, since a reader of the network's packets sees it;
the proof is the private key of the only certificate which either side accepts.
"""

import contextlib
import functools
import os
import ssl
import sys
from collections.abc import Iterator

from nodectl.cluster.link import certificate, keys

VERSION = 2  # 1 was a protocol of nodectl's own, which did not encrypt
_MOST_SHAKEN = 1 << 14  # bytes; a handshake takes less than 2 KiB of either side
_NAME = 32  # digits
_READ = 1 << 14  # bytes of a TLS record
_PIECE = 1 << 16  # bytes: a MemoryBIO keeps for ever the room of the most that it has had
_OTHER = (
    "the other side does not have this cluster's secret (or its nodectl has another version, or it follows another "
    "leader)"
)
# OpenSSL's names of the ends of a handshake with a process that has another name or another certificate.
_OTHERS = (
    "CALLBACK_FAILED", "TLSV1_UNRECOGNIZED_NAME", "TLSV1_ALERT_UNKNOWN_CA", "PEER_DID_NOT_RETURN_A_CERTIFICATE",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
)  # fmt: skip


class Refused(Exception):
    """A far side that is not of this cluster, or bytes that it has not sent; str() is a single line."""


def ignore_names_of_strangers() -> None:
    """Keep Python from writing a traceback for each server name that is no text, which any stranger can send.

    `ssl` refuses such a caller before it asks `Tls`. For a process whose standard error somebody keeps.
    """

    def tell(what: "sys.UnraisableHookArgs") -> None:
        if not isinstance(what.exc_value, UnicodeDecodeError):
            sys.__unraisablehook__(what)

    sys.unraisablehook = tell


class Tls:
    """What a member needs for its TLS connections in an epoch. Raises ValueError for a secret of a wrong length."""

    def __init__(self, secret: bytes, epoch: int = 0) -> None:
        made = certificate.of(secret)
        self.name = keys.derived(secret, b"server name %d" % VERSION, b"%d" % epoch).hex()[:_NAME]
        self.caller = _context(ssl.PROTOCOL_TLS_CLIENT, made)
        self.answerer = _context(ssl.PROTOCOL_TLS_SERVER, made)
        self.answerer.num_tickets = 0  # each connection has a handshake of its own
        self.answerer.sni_callback = self._check_name

    def _check_name(self, _connection: object, name: str | None, _context: object) -> int | None:
        return None if name == self.name else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME


@functools.lru_cache(maxsize=2)  # a process is one member; those of tests and of the simulator are thousands
def tls_of(secret: bytes, epoch: int) -> Tls:
    """Return the same value for the same secret and epoch. Raises ValueError for a secret of a wrong length."""
    return Tls(secret, epoch)


def _context(protocol: int, made: certificate.Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False  # the one certificate that is accepted is of all members
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=made.der)
    with _in_memory(made.pem) as path:
        context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """Yield a path at which this process alone finds `data`: `ssl` reads a private key from a path only."""
    memory = os.memfd_create("nodectl-key", os.MFD_CLOEXEC)
    try:
        os.write(memory, data)
        yield f"/proc/self/fd/{memory}"
    finally:
        os.close(memory)


class TlsConnection:
    """An end of a connection. `is_proven` is true when the far side has proven that it is of the cluster."""

    __slots__ = ("_came", "_outgoing", "_shaken", "_tls", "is_proven")

    def __init__(self, tls: Tls, *, calls: bool) -> None:
        self._came, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        if calls:
            self._tls = tls.caller.wrap_bio(self._came, self._outgoing, server_hostname=tls.name)
        else:
            self._tls = tls.answerer.wrap_bio(self._came, self._outgoing, server_side=True)
        self._shaken = 0
        self.is_proven = False

    def feed(self, data: bytes) -> None:
        """Add received bytes. `shake` or `read` handles them at once, so that few are kept."""
        self._came.write(data)

    def shake(self) -> bool:
        """Go on with the handshake; a caller begins it. Return `is_proven`. Raises Refused.

        Afterwards, also after Refused, `outgoing` has bytes for the far side.
        """
        self._shaken += self._came.pending
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if self._shaken > _MOST_SHAKEN:
                raise Refused("the other side sends more than a handshake takes") from None
            return False
        except ssl.SSLError as error:
            raise Refused(_reason(error)) from None
        self.is_proven = True
        return True

    def read(self) -> bytes:
        """Return what was decrypted of the received bytes. Raises Refused."""
        found = []
        try:
            while (self._came.pending or self._tls.pending()) and (data := self._tls.read(_READ)):
                found.append(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise Refused(f"what has come is not what the other side has sent ({error.reason})") from None
        return b"".join(found)

    def seal(self, data: bytes) -> bytes:
        """Return the encrypted `data`."""
        sealed = []
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left[:_PIECE]) :]
            sealed.append(self.outgoing())
        return b"".join(sealed)

    def outgoing(self) -> bytes:
        """Return the bytes to send to the far side."""
        return self._outgoing.read()


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError) or error.reason in _OTHERS:
        return _OTHER
    return f"the other side does not speak as a nodectl cluster does ({error.reason})"
