"""The states of jobs and steps by the names and abbreviations of sacct. Pure."""

_STATES = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "CF": "CONFIGURING", "CG": "COMPLETING", "DL": "DEADLINE",
    "F": "FAILED", "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY", "PD": "PENDING", "PR": "PREEMPTED", "R": "RUNNING",
    "RQ": "REQUEUED", "RS": "RESIZING", "S": "SUSPENDED", "TO": "TIMEOUT",
}  # fmt: skip
STATES = tuple(sorted(_STATES.values()))


def state_named(word: str) -> str:
    """Return the state for a name or an abbreviation. Raises ValueError."""
    name = word.strip().upper()
    found = _STATES.get(name, name)
    if found not in STATES:
        raise ValueError(f"no state {word[:40]!r}: {', '.join(STATES)}")
    return found
