"""The configuration in words: `nodectl config --explain`."""

from __future__ import annotations

from nodectl.model.config.key import toml
from nodectl.service.config_file.table import KEYS

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from nodectl.model.config import Config


def explain(config: Config | None = None) -> str:
    """Return the text of `nodectl config --explain`, itself a valid file: each key with a help text.

    Without a configuration the keys are commented out.
    """
    blocks = []
    for key in KEYS:
        value = "# " + key.name if config is None else key.name
        value += f" = {toml(getattr(config, key.name))}" if config is not None else " ="
        text = f"# {key.help}\n# Allowed: {key.parser.allowed}.\n# Default: {key.default_text()}.\n"
        blocks.append(f"{text}{value}\n")
    return "\n".join(blocks)
