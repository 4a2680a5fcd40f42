"""What the secret is used for: one keyed BLAKE2b for each purpose, so that no answer serves for another."""

from _blake2 import blake2b
from _operator import _compare_digest

SHORTEST, LONGEST = 16, 64  # bytes of a secret
PROOF = 32
MAC = 16


def derived(secret: bytes, purpose: bytes, transcript: bytes) -> bytes:
    """32 bytes that only who has the secret can say of this conversation. `purpose` has at most 16 bytes."""
    if not SHORTEST <= len(secret) <= LONGEST:
        raise ValueError(f"a secret of {len(secret)} bytes is none")
    return blake2b(transcript, digest_size=PROOF, key=secret, person=purpose).digest()


def are_same(one: bytes, other: bytes) -> bool:
    """Compares in a time that tells nothing of where they differ."""
    return _compare_digest(one, other)
