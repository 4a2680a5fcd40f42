"""The handshake: who lacks the secret learns nothing by it and gets nowhere, whatever it replays or reflects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.cluster.link.frames import Opener, Sealer
from nodectl.cluster.link.handshake import VERSION, Handshake, Refused, hello

SECRET, WRONG = b"s" * 32, b"w" * 32
HELLO = len(hello(bytes(32)))
PROOF = 32


def caller(nonce: int = 1, secret: bytes = SECRET) -> Handshake:
    return Handshake(secret, bytes([nonce]) * 32, calls=True)


def answerer(nonce: int = 2, secret: bytes = SECRET) -> Handshake:
    return Handshake(secret, bytes([nonce]) * 32, calls=False)


def meet(one: Handshake, other: Handshake, size: int = 1000) -> list[bytes]:
    """What each says in its turn, in pieces."""
    said = [one.begin()]
    sides = [other, one]
    while said[-1]:
        listener = sides[len(said) % 2 - 1]
        said.append(b"".join([listener.feed(said[-1][at : at + size]) for at in range(0, len(said[-1]), size)]))
    return said[:-1]


@given(st.integers(1, 100))
def test_two_who_know_the_secret_have_the_same_keys(size: int) -> None:
    one, other = caller(), answerer()
    said = meet(one, other, size)
    assert one.done
    assert other.done
    assert [len(words) for words in said] == [HELLO, HELLO, PROOF, PROOF]
    assert (one.sending, one.receiving) == (other.receiving, other.sending)
    assert one.sending != one.receiving


def test_frames_pass_after_it() -> None:
    one, other = caller(), answerer()
    meet(one, other)
    opener = Opener(other.receiving)
    opener.feed(Sealer(one.sending).seal(b"begun"))
    assert opener.next() == b"begun"


def test_what_came_with_the_last_proof_is_kept() -> None:
    one, other = caller(), answerer()
    proof = one.feed(other.feed(one.begin()))
    one.feed(other.feed(proof) + b"frames")
    assert one.rest == b"frames"


def test_who_answers_without_the_secret_is_refused() -> None:
    one, other = caller(), answerer(secret=WRONG)
    one.feed(other.feed(one.begin()))
    with pytest.raises(Refused, match="secret"):
        one.feed(bytes(PROOF))


def test_who_calls_without_the_secret_hears_nothing_that_depends_on_it() -> None:
    heard = set()
    for secret in (SECRET, WRONG, b"third" * 8):
        other = answerer(secret=secret[:32])
        stranger = caller(secret=b"?" * 32)
        answer = other.feed(stranger.begin())
        with pytest.raises(Refused, match="secret"):
            other.feed(stranger.feed(answer))
        heard.add(answer)
    assert len(heard) == 1


def test_recorded_conversation_says_nothing_to_another_answerer() -> None:
    one = caller()
    said = meet(one, answerer(nonce=2))
    later = answerer(nonce=3)
    later.feed(said[0])
    with pytest.raises(Refused):
        later.feed(said[2])


def test_answerers_own_words_are_no_proof_of_a_caller() -> None:
    """A stranger who lets two answerers, or the caller itself, say what it would have to say."""
    one, other = caller(), answerer()
    said = meet(one, other)
    for words in (said[3], said[2][::-1], bytes(PROOF)):
        victim = answerer(nonce=2)
        victim.feed(said[0])
        with pytest.raises(Refused):
            victim.feed(words)


def test_caller_is_no_oracle_for_who_wants_to_call() -> None:
    """The stranger gives the nonce of an answerer to a caller; what the caller says is of its own hello alone."""
    victim = answerer(nonce=9)
    stranger_hello = hello(b"x" * 32)
    victims_hello = victim.feed(stranger_hello)
    proof = caller(nonce=1).feed(victims_hello)
    with pytest.raises(Refused):
        victim.feed(proof)


def test_own_words_that_come_back_are_refused() -> None:
    one = caller()
    with pytest.raises(Refused):
        one.feed(one.begin())


def test_other_version_is_named() -> None:
    for side in (caller(), answerer()):
        with pytest.raises(Refused, match=f"version {VERSION + 1} .* version {VERSION}"):
            side.feed(hello(bytes(32), VERSION + 1))


@given(st.binary(min_size=1, max_size=300))
def test_something_else_is_refused_and_never_proven(data: bytes) -> None:
    for side in (caller(), answerer()):
        try:
            side.feed(data)
        except Refused:
            continue
        assert not side.done


def test_who_sends_more_than_a_proof_before_it_is_answered_is_refused() -> None:
    """Else what an unproven one sends would have to be kept."""
    other = answerer()
    one = caller()
    proof = one.feed(other.feed(one.begin()))
    with pytest.raises(Refused):
        other.feed(proof + b"!")


@given(st.integers(0, HELLO + PROOF - 1), st.integers(0, 7))
def test_changed_bit_is_refused(at: int, bit: int) -> None:
    one, other = caller(), answerer()
    words = bytearray(one.begin())
    if at < HELLO:
        words[at] ^= 1 << bit
    try:
        proof = bytearray(one.feed(other.feed(bytes(words))))
        if at >= HELLO:
            proof[at - HELLO] ^= 1 << bit
        other.feed(bytes(proof))
    except Refused:
        pass
    assert not other.done
