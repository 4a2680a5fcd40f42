"""Programs for tests of what is made of the libraries that a program is linked to."""

from __future__ import annotations

import subprocess
from pathlib import Path


def linked_to(name: str, directory: Path) -> Path:
    """A program that needs a library of this name."""
    library, program = directory / name, directory / f"with-{name}"
    subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", library, f"-Wl,-soname,{name}"], input=b"", check=True)
    source = b"int main(void) { return 0; }"
    subprocess.run(["cc", "-x", "c", "-", "-o", program, "-Wl,--no-as-needed", "-x", "none", library], input=source,
                   check=True)  # fmt: skip
    return program
