"""The site of all documents is built without a warning, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("sphinx", reason="the extra docs is not installed")
ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r'(?:href|src)="([^"]+)"')


def test_site_is_built_without_a_warning_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    words = [sys.executable, "-P", str(ROOT / "docs/site/stage.py"), str(tmp_path)]
    built = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    assert (tmp_path / "reference/nodectl-run.1.html").exists()
    broken = []
    for page in tmp_path.rglob("*.html"):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            name = unquote(target.partition("#")[0].partition("?")[0])
            if name and ":" not in name and not (page.parent / name).exists():
                broken.append(f"{page.relative_to(tmp_path)}: {target}")
    assert not broken
