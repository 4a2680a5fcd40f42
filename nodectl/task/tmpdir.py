"""TMPDIR of a task, as with Slurm. Runs in the task, as its user, before any hook or program of the user's."""

from nodectl import messages
from nodectl.kernel import user_path

_DEFAULT = "/tmp"  # as with Slurm


def directory(environment: dict[str, str], user_name: str) -> None:
    """Makes TMPDIR where it is missing. It is /tmp where it is not set, or cannot be made, with a warning."""
    path = environment.setdefault("TMPDIR", _DEFAULT)
    if path == _DEFAULT:
        return  # exists everywhere
    try:
        user_path.need_directory(path)
    except OSError as error:
        messages.warning(f"make TMPDIR {path!r}: {error.strerror} (as {user_name}): it is {_DEFAULT} instead")
        environment["TMPDIR"] = _DEFAULT
