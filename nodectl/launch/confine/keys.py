"""The configuration's keys about confinement.

The daemon and the doctor check the combination of the keys.
"""

from __future__ import annotations

from nodectl.model.config.key import Key, section
from nodectl.model.config.values import one_of
from nodectl.model.confinement_level import DEFAULT, LEVELS, NONE, is_below, strictest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.config import Config

LEVEL = one_of(*LEVELS)

SECURITY = section(
    "security",
    Key(
        "secure_floor", LEVEL, NONE,
        "Least confinement of any step: a request for less is refused, also root's.",
    ),
    Key(
        "secure", LEVEL, lambda values: strictest(DEFAULT, str(values["secure_floor"])),
        "Confinement of a step that does not ask. none: what a login shell may. default: no set-user-ID programs, no "
        "capabilities but over files and processes, no system calls that no job needs. strict: also no capability, no "
        "namespaces, and writing only in the working directory and temporary ones.",
        shown='"default", or secure_floor where that is more',
    ),
)  # fmt: skip


def check(config: Config) -> str:
    """Return the error in the combination of keys, "" for none."""
    if is_below(config.secure, config.secure_floor):
        return f"secure = {config.secure} is below secure_floor = {config.secure_floor}"
    return ""
