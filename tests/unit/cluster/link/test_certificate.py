"""The certificate of a cluster: every member computes the same one, and OpenSSL finds no fault in it."""

from __future__ import annotations

import os
import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.cluster.link import certificate
from nodectl.cluster.link.tls import Tls, TlsConnection

SECRET, OTHER = b"s" * 32, b"o" * 32
CHECKS_OWN_SIGNATURE = 0x4000  # X509_V_FLAG_CHECK_SS_SIGNATURE, which Python does not name


def test_each_member_computes_the_same_and_another_cluster_another() -> None:
    assert certificate.of(SECRET) is certificate.of(SECRET)
    assert certificate.of.__wrapped__(SECRET) == certificate.of(SECRET)
    assert certificate.of(SECRET).der != certificate.of(OTHER).der


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=16, max_size=64))
def test_private_key_fits_the_certificate_of_any_secret(secret: bytes) -> None:
    Tls(secret)  # OpenSSL compares the two


@pytest.mark.parametrize("size", [0, 15, 65])
def test_secret_of_a_wrong_length_makes_no_certificate(size: int) -> None:
    with pytest.raises(ValueError, match="secret"):
        Tls(bytes(size))


def own_signature_holds(tls: Tls) -> bool:
    tls.caller.verify_flags |= CHECKS_OWN_SIGNATURE
    one, other = TlsConnection(tls, calls=True), TlsConnection(tls, calls=False)
    one.shake()
    other.feed(one.outgoing())
    other.shake()
    one.feed(other.outgoing())
    try:
        one._tls.do_handshake()
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_signature_is_right_although_no_member_looks_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(own_signature_holds(Tls(secret)) for secret in (SECRET, OTHER, bytes(16), os.urandom(32)))
    digest = b"\x30\x06\x02\x01\x01\x02\x01\x01"
    monkeypatch.setattr(certificate, "_signature", lambda *_: digest)
    certificate.of.cache_clear()
    assert not own_signature_holds(Tls(SECRET))
    certificate.of.cache_clear()


def test_clocks_of_nodes_do_not_matter() -> None:
    (found,) = Tls(SECRET).caller.get_ca_certs()
    assert (found["notBefore"], found["notAfter"]) == ("Jan  1 00:00:00 1970 GMT", "Dec 31 23:59:59 9999 GMT")


def test_private_key_stays_in_no_descriptor() -> None:
    before = os.listdir("/proc/self/fd")
    Tls(os.urandom(32))
    assert os.listdir("/proc/self/fd") == before


def lengths(der: bytes) -> list[bytes]:
    """Return how the length of each value is written, of values in values too."""
    found = []
    at = 0
    while at < len(der):
        kind, first = der[at], der[at + 1]
        more = first - 0x80 if first & 0x80 else 0
        size = int.from_bytes(der[at + 2 : at + 2 + more], "big") if more else first
        found.append(der[at + 1 : at + 2 + more])
        begin = at + 2 + more
        if kind & 0x20:
            found += lengths(der[begin : begin + size])
        at = begin + size
    return found


def test_lengths_are_written_as_short_as_strict_readers_want_them() -> None:
    for length in lengths(certificate.of(SECRET).der):
        size = int.from_bytes(length[1:], "big") if length[0] & 0x80 else length[0]
        assert length == (bytes([size]) if size < 128 else b"\x81" + bytes([size]) if size < 256 else length)
        assert size < 256 or length[:1] == b"\x82"
