"""A plugin for pytest on the host: writes down which tests are selected, and their marks, into the file that
`NODECTL_TEST_LISTING` names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = "NODECTL_TEST_LISTING"


def pytest_collection_finish(session: pytest.Session) -> None:
    """The order is that in which they are run."""
    found = {item.nodeid: sorted({mark.name for mark in item.iter_markers()}) for item in session.items}
    Path(os.environ[FILE]).write_text(json.dumps(found), encoding="utf-8")
