"""Keys and proofs from the secret: a keyed BLAKE2b for each purpose, so no answer serves for another purpose."""

from _blake2 import blake2b
from _operator import _compare_digest

SHORTEST, LONGEST = 16, 64  # bytes of a secret
PROOF = 32
MAC = 16


def derived(secret: bytes, purpose: bytes, transcript: bytes) -> bytes:
    """Return 32 bytes for this conversation, which only a process with the secret can compute.

    `purpose` has at most 16 bytes. Raises ValueError for a secret of a wrong length.
    """
    if not SHORTEST <= len(secret) <= LONGEST:
        raise ValueError(f"a secret of {len(secret)} bytes is none")
    return blake2b(transcript, digest_size=PROOF, key=secret, person=purpose).digest()


def are_same(one: bytes, other: bytes) -> bool:
    """Compare two values in constant time."""
    return _compare_digest(one, other)
