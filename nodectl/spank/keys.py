"""The configuration's keys about SPANK plugins."""

from __future__ import annotations

from nodectl.model.config.key import Key, section
from nodectl.model.config.values import PATH, SECONDS, Parser, string
from nodectl.spank import versions


def _releases(value: object) -> str:
    text = string(value)
    versions.read(text)
    return text


RELEASES = Parser("one release of Slurm as \"24.11\", or the first and the last with '-' between them", _releases)

SPANK = section(
    "plugins",
    Key(
        "plugstack_config", PATH, "/etc/nodectl/plugstack.conf",
        "List of SPANK plugins. A file that is not there is an empty list.",
    ),
    Key(
        "spank_versions", RELEASES, versions.DEFAULT,
        "Releases of Slurm whose compiled SPANK plugins are loaded. The meaning of other releases' calls is unknown.",
    ),
    Key(
        "spank_hook_timeout", SECONDS, 60,
        "Seconds a function of a plugin may take before its process is ended.",
    ),
)  # fmt: skip
