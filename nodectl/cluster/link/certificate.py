"""The certificate of a cluster and its private key, computed from the secret: each member computes the same ones.

Python's `ssl` uses certificates but makes none, and a user's node need not have the program openssl or the package
cryptography. So this module has the arithmetic of the elliptic curve P-256, which computes a public key and a single
signature, both at the start of a process. TLS itself, and each use of the private key in it, is OpenSSL's.

The certificate has no term, so that clocks of nodes may differ, and no name that matters: members accept exactly this
certificate. Sources: SEC 1 and SEC 2 (curve, signature, form of the private key), RFC 5280 (certificate). No I/O.
"""

import binascii
import functools
import hashlib
from typing import NamedTuple

from nodectl.cluster.link.keys import derived

_Point = tuple[int, int]

_PRIME = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_BASE = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_SIZE = 32  # bytes of a number of the curve

_INTEGER, _BITS, _OCTETS, _TEXT, _SEQUENCE, _SET, _OPTIONAL = 2, 3, 4, 0x0C, 0x30, 0x31, 0xA0
_UTC_TIME, _TIME = 0x17, 0x18  # before the year 2050, and after
_EC_KEY = bytes.fromhex("06072a8648ce3d0201")  # object identifiers: id-ecPublicKey
_P256 = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_SHA256 = bytes.fromhex("06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")


class Certificate(NamedTuple):
    """A certificate as DER, and the same with its private key as PEM."""

    der: bytes
    pem: bytes


@functools.lru_cache(maxsize=2)  # each epoch of the cluster asks again
def of(secret: bytes) -> Certificate:
    """Return the certificate of the cluster with this secret. Takes some 25 ms. Raises ValueError."""
    private = _number(secret, b"private key")
    x, y = _times(private)
    public = _der(_SEQUENCE, _der(_SEQUENCE, _EC_KEY, _P256), _der(_BITS, b"\0\4", _bytes(x), _bytes(y)))
    algorithm = _der(_SEQUENCE, _ECDSA_SHA256)
    name = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _COMMON_NAME, _der(_TEXT, b"nodectl"))))
    term = _der(_SEQUENCE, _der(_UTC_TIME, b"700101000000Z"), _der(_TIME, b"99991231235959Z"))
    content = _der(_SEQUENCE, _integer(1), algorithm, name, term, name, public)
    signature = _signature(content, private, _number(secret, b"signature", content))
    certificate = _der(_SEQUENCE, content, algorithm, _der(_BITS, b"\0", signature))
    key = _der(_SEQUENCE, _integer(1), _der(_OCTETS, _bytes(private)), _der(_OPTIONAL, _P256))
    return Certificate(certificate, _pem(b"CERTIFICATE", certificate) + _pem(b"EC PRIVATE KEY", key))


def _number(secret: bytes, purpose: bytes, detail: bytes = b"") -> int:
    """Return a number below the curve's order. The remainder of 64 bytes is as likely as any other."""
    halves = (derived(secret, purpose, half + detail) for half in (b"1", b"2"))
    return 1 + int.from_bytes(b"".join(halves), "big") % (_ORDER - 1)


def _signature(content: bytes, private: int, once: int) -> bytes:
    """Return the signature of `content`. `once` must serve for no other content: two of them reveal the key."""
    digest = int.from_bytes(hashlib.sha256(content).digest(), "big")
    first = _times(once)[0] % _ORDER
    second = pow(once, -1, _ORDER) * (digest + first * private) % _ORDER
    return _der(_SEQUENCE, _integer(first), _integer(second))


def _times(number: int) -> _Point:
    """Return a multiple of the curve's base point. `number` is positive and below the order."""
    found = _BASE
    for digit in f"{number:b}"[1:]:
        found = _sum(found, found)
        if digit == "1":
            found = _sum(found, _BASE)
    return found


def _sum(one: _Point, other: _Point) -> _Point:
    """Return the sum of two points of the curve which are not each other's negative."""
    if one == other:
        slope = (3 * one[0] * one[0] - 3) * pow(2 * one[1], -1, _PRIME)
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _PRIME)
    x = (slope * slope - one[0] - other[0]) % _PRIME
    return x, (slope * (one[0] - x) - one[1]) % _PRIME


def _der(kind: int, *content: bytes) -> bytes:
    """Return a value in DER, of at most 65,535 bytes."""
    value = b"".join(content)
    size = len(value)
    if size < 0x80:
        return bytes([kind, size]) + value
    length = size.to_bytes(1 if size < 0x100 else 2, "big")
    return bytes([kind, 0x80 + len(length)]) + length + value


def _integer(number: int) -> bytes:
    return _der(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))  # a leading bit would mean a minus


def _bytes(number: int) -> bytes:
    return number.to_bytes(_SIZE, "big")


def _pem(kind: bytes, der: bytes) -> bytes:
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (kind, binascii.b2a_base64(der), kind)
