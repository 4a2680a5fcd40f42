"""TLS between members: a process without the secret gets nowhere, and no reader of the bytes learns what was said."""

from __future__ import annotations

import ssl
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.cluster.link import tls as module
from nodectl.cluster.link.tls import Refused, Tls, TlsConnection

OURS, THEIRS = Tls(b"s" * 32), Tls(b"w" * 32)


def caller(tls: Tls = OURS) -> TlsConnection:
    return TlsConnection(tls, calls=True)


def answerer(tls: Tls = OURS) -> TlsConnection:
    return TlsConnection(tls, calls=False)


def hello(tls: Tls = OURS) -> bytes:
    one = caller(tls)
    one.shake()
    return one.outgoing()


def say(one: TlsConnection, data: bytes, size: int = 1 << 20) -> bytes:
    """The answer to bytes of the handshake, which come in pieces."""
    for at in range(0, len(data), size):
        one.feed(data[at : at + size])
        one.shake()
    return one.outgoing()


def meet(one: TlsConnection, other: TlsConnection, size: int = 1 << 20) -> list[bytes]:
    """What each says in its turn."""
    one.shake()
    said = [one.outgoing()]
    said.append(say(other, said[0], size))
    said.append(say(one, said[1], size))
    said.append(say(other, said[2], size))
    return said


def met() -> tuple[TlsConnection, TlsConnection]:
    one, other = caller(), answerer()
    meet(one, other)
    return one, other


def knowing_the_name(tls: Tls) -> Tls:
    """A stranger that has read the name in another conversation."""
    found = Tls(b"w" * 32)
    found.name = tls.name
    return found


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 700))
def test_two_members_are_proven_however_the_bytes_are_cut(size: int) -> None:
    one, other = caller(), answerer()
    said = meet(one, other, size)
    assert one.is_proven
    assert other.is_proven
    assert said[3] == b""  # and no ticket, by which a later connection would do without a proof
    assert one._tls.version() == "TLSv1.3"
    assert max(map(len, said)) < module._MOST_SHAKEN / 4


@pytest.mark.parametrize("size", [0, 1, 100, 16_384, 16_385, 1_000_000])
def test_data_pass_both_ways_after_it(size: int) -> None:
    one, other = met()
    for sender, receiver in ((one, other), (other, one)):
        receiver.feed(sender.seal(b"x" * size))
        assert receiver.read() == b"x" * size
        assert receiver.read() == b""


def test_what_came_with_the_last_proof_is_kept() -> None:
    one, other = caller(), answerer()
    one.shake()
    last = say(one, say(other, one.outgoing()))
    assert one.is_proven
    other.feed(last + one.seal(b"frames"))
    assert other.shake()
    assert other.read() == b"frames"


def test_much_may_come_with_the_last_proof() -> None:
    one, other = caller(), answerer()
    one.shake()
    last = say(one, say(other, one.outgoing()))
    other.feed(last + one.seal(bytes(200_000)))
    assert other.shake()
    assert len(other.read()) == 200_000


def test_caller_accepts_no_other_certificate() -> None:
    one, other = caller(), answerer(knowing_the_name(OURS))
    one.shake()
    answer = say(other, one.outgoing())
    with pytest.raises(Refused, match="secret"):
        say(one, answer)
    assert not one.is_proven


def test_answerer_accepts_no_other_certificate() -> None:
    stranger = knowing_the_name(OURS)
    stranger.caller.verify_mode = ssl.CERT_NONE
    one, other = caller(stranger), answerer()
    one.shake()
    proof = say(one, say(other, one.outgoing()))
    assert one.is_proven  # it has nothing against us
    with pytest.raises(Refused, match="secret"):
        say(other, proof)
    assert not other.is_proven


def test_answerer_wants_a_certificate() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    stranger = knowing_the_name(OURS)
    stranger.caller = context
    one, other = caller(stranger), answerer()
    one.shake()
    proof = say(one, say(other, one.outgoing()))
    with pytest.raises(Refused, match="secret"):
        say(other, proof)


def test_who_calls_without_the_name_is_told_so_before_anything_is_computed() -> None:
    """The answer is an alert, the same from every cluster: 2 bytes in a record."""
    heard = set()
    for ours in (OURS, Tls(b"third" * 5)):
        other = answerer(ours)
        other.feed(hello(THEIRS))
        with pytest.raises(Refused, match="secret"):
            other.shake()
        heard.add(other.outgoing())
    assert [len(words) for words in heard] == [7]
    stranger = caller(THEIRS)
    stranger.shake()
    with pytest.raises(Refused, match="secret"):
        say(stranger, heard.pop())


def test_who_asks_for_no_name_is_refused() -> None:
    one = OURS.caller.wrap_bio(ssl.MemoryBIO(), outgoing := ssl.MemoryBIO())
    with pytest.raises(ssl.SSLWantReadError):
        one.do_handshake()
    other = answerer()
    other.feed(outgoing.read())
    with pytest.raises(Refused):
        other.shake()


def test_member_of_another_epoch_is_refused() -> None:
    for one, other in ((OURS, Tls(b"s" * 32, 1)), (Tls(b"s" * 32, 2), Tls(b"s" * 32, 1))):
        victim = answerer(other)
        with pytest.raises(Refused, match="another leader"):
            say(victim, hello(one))


def test_other_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    later = Tls(b"s" * 32)
    with pytest.raises(Refused, match="version"):
        say(answerer(), hello(later))


def test_older_tls_is_refused() -> None:
    old = Tls(b"s" * 32)
    old.caller.minimum_version = old.caller.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(Refused):
        say(answerer(), hello(old))


def test_recorded_conversation_says_nothing_to_another_answerer() -> None:
    said = meet(caller(), answerer())
    later = answerer()
    say(later, said[0])
    with pytest.raises(Refused):
        say(later, said[2])
    assert not later.is_proven


def test_recorded_answer_says_nothing_to_another_caller() -> None:
    said = meet(caller(), answerer())
    later = caller()
    later.shake()
    with pytest.raises(Refused):
        say(later, said[1])
    assert not later.is_proven


def test_own_words_that_come_back_are_refused() -> None:
    one = caller()
    one.shake()
    with pytest.raises(Refused):
        say(one, one.outgoing())


def test_answerers_own_words_are_no_proof_of_a_caller() -> None:
    said = meet(caller(), answerer())
    for words in (said[1], said[2][::-1], bytes(100)):
        victim = answerer()
        say(victim, said[0])
        with pytest.raises(Refused):
            say(victim, words)


@given(st.binary(min_size=1, max_size=300))
def test_something_else_is_refused_and_never_proven(data: bytes) -> None:
    for side in (caller(), answerer()):
        side.feed(data)
        try:
            side.shake()
        except Refused:
            continue
        assert not side.is_proven


def test_the_earlier_protocol_is_refused() -> None:
    with pytest.raises(Refused, match="does not speak"):
        say(answerer(), b"nodectl link 0001\n" + bytes(32))


def test_a_name_that_is_no_text_is_refused_without_a_word_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    module.ignore_names_of_strangers()
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname = False
    stranger.verify_mode = ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    hello = stranger.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="x" * 32)
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    with pytest.raises(Refused):
        say(answerer(), sent.read().replace(b"x" * 32, b"\xff" * 32))
    assert capfd.readouterr().err == ""


def test_a_connection_keeps_no_room_for_the_longest_that_it_has_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A MemoryBIO never gives back the room that it has had."""
    had: list[int] = []
    outgoing = TlsConnection.outgoing

    def noting(connection: TlsConnection) -> bytes:
        had.append(connection._outgoing.pending)
        return outgoing(connection)

    one, other = met()
    monkeypatch.setattr(TlsConnection, "outgoing", noting)
    other.feed(one.seal(b"x" * (4 << 20)))
    assert other.read() == b"x" * (4 << 20)
    assert max(had) < 2 * module._PIECE


def test_who_sends_more_than_a_handshake_takes_is_refused() -> None:
    """Else what an unproven side sends would have to be kept."""
    endless = b"\x01" + (120_000).to_bytes(3, "big")  # a hello of 120,000 bytes
    record = b"\x16\x03\x01" + (1000).to_bytes(2, "big")
    other = answerer()
    other.feed(record + endless + bytes(996))
    for _ in range(module._MOST_SHAKEN // 1024):
        assert not other.shake()
        other.feed(record + bytes(1000))
    with pytest.raises(Refused, match="more than a handshake takes"):
        other.shake()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2), st.integers(0, 9999), st.integers(0, 7))
def test_changed_bit_is_refused(turn: int, at: int, bit: int) -> None:
    """Where both sides believe to have met, each has heard what the other has said."""
    one, other = caller(), answerer()

    def changed(words: bytes, now: int) -> bytes:
        if now != turn:
            return words
        found = bytearray(words)
        found[at % len(found)] ^= 1 << bit
        return bytes(found)

    one.shake()
    said = changed(one.outgoing(), 0)
    try:
        said = changed(say(other, said), 1)
        said = changed(say(one, said), 2)
        say(other, said)
    except Refused:
        return
    if one.is_proven and other.is_proven:  # a bit that means nothing: a record's version
        other.feed(one.seal(b"begun"))
        assert other.read() == b"begun"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), st.data())
def test_no_changed_byte_passes(payloads: list[bytes], data: st.DataObject) -> None:
    one, other = met()
    wire = bytearray(b"".join(map(one.seal, payloads)))
    at = data.draw(st.integers(0, len(wire) - 1))
    wire[at] ^= data.draw(st.integers(1, 255))
    other.feed(bytes(wire))
    found = b""
    try:
        found = other.read()
    except Refused:
        return
    assert b"".join(payloads).startswith(found)
    assert len(found) < len(b"".join(payloads))  # it waits for the rest of a record


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=20), min_size=2, max_size=5, unique=True), st.data())
def test_records_that_are_repeated_left_out_or_moved_do_not_pass(payloads: list[bytes], data: st.DataObject) -> None:
    one, other = met()
    records = [one.seal(payload) for payload in payloads]
    order = data.draw(st.lists(st.integers(0, len(records) - 1), min_size=1, max_size=6))
    good = 0
    while good < len(order) and order[good] == good:
        good += 1
    for at, number in enumerate(order):
        other.feed(records[number])
        if at < good:
            assert other.read() == payloads[number]
        else:
            with pytest.raises(Refused):
                other.read()
            break


def test_what_comes_back_to_its_sender_does_not_pass() -> None:
    one, _ = met()
    one.feed(one.seal(b"spend ten nodes"))
    with pytest.raises(Refused):
        one.read()


def test_nothing_that_is_sent_can_be_read_in_the_bytes() -> None:
    one, other = caller(), answerer()
    said = b"".join(meet(one, other))
    said += one.seal(b"AWS_SECRET_ACCESS_KEY=") + other.seal(b"the output of a task")
    for words in (b"AWS_SECRET", b"output", b"s" * 32, b"nodectl link"):
        assert words not in said


def test_the_same_words_look_different_each_time() -> None:
    one, _ = met()
    another, _ = met()
    assert len({one.seal(b"begun"), one.seal(b"begun"), another.seal(b"begun")}) == 3
