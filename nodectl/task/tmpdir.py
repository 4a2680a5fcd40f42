"""TMPDIR of a task, as with Slurm. Runs in the task, as its user, before any hook or program of the user's."""

from nodectl import messages
from nodectl.kernel import user_path

_ELSE = "/tmp"  # Slurm's word


def directory(environment: dict[str, str], user_name: str) -> None:
    """TMPDIR is there: made where it is missing, and /tmp where it is not named or cannot be made, which is told."""
    path = environment.setdefault("TMPDIR", _ELSE)
    if path == _ELSE:
        return  # is everywhere
    try:
        user_path.need_directory(path)
    except OSError as error:
        messages.warning(f"make TMPDIR {path!r}: {error.strerror} (as {user_name}): it is {_ELSE} instead")
        environment["TMPDIR"] = _ELSE
