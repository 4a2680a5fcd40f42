"""The configuration's keys about confinement.

The daemon and the doctor check them.
"""

from nodectl.model.confinement_level import is_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.config import Config


def check(config: "Config") -> str:
    """What is wrong with the keys taken together, "" for nothing."""
    if is_below(config.secure, config.secure_floor):
        return f"secure = {config.secure} is below secure_floor = {config.secure_floor}"
    return ""
