"""The select plugin of the guide, as its author would have it in a file, and what careless authors make of it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def example() -> str:
    """The complete plugin that the guide for authors shows."""
    text = (ROOT / "docs/guides/select-plugins.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise AssertionError("the guide has no example")
    return found[1]


def written(directory: Path, *changes: tuple[str, str], name: str = "first_fit") -> str:
    """The path of the example in a file of its own, after these changes."""
    text = example()
    for old, new in changes:
        if old not in text:
            raise AssertionError(f"the example has no {old!r}")
        text = text.replace(old, new)
    path = directory / f"{name}.py"
    path.write_text(text.replace("select/first_fit", f"select/{name}"))
    return str(path)
