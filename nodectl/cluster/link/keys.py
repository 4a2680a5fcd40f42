"""Values derived from a cluster's secret: a keyed BLAKE2b for each purpose, so no value serves for another purpose."""

from _blake2 import blake2b

SHORTEST, LONGEST = 16, 64  # bytes of a secret
SIZE = 32


def derived(secret: bytes, purpose: bytes, detail: bytes = b"") -> bytes:
    """Return 32 bytes for a purpose and a detail, which only a process with the secret can compute.

    `purpose` has at most 16 bytes. Raises ValueError for a secret of a wrong length.
    """
    if not SHORTEST <= len(secret) <= LONGEST:
        raise ValueError(f"a secret of {len(secret)} bytes is none")
    return blake2b(detail, digest_size=SIZE, key=secret, person=purpose).digest()
