"""The schemas by name."""

import json
from importlib import resources
from typing import Any

_SUFFIX = ".json"


def names() -> list[str]:
    """Return the names of all schemas. `spank-check` belongs to `nodectl spank check`."""
    files = (file.name for file in resources.files(__package__).iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))


def text(name: str) -> str:
    """Return the text of a schema's file. Raises OSError."""
    return (resources.files(__package__) / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """Return a schema as values. Raises OSError."""
    found: dict[str, Any] = json.loads(text(name))
    return found
