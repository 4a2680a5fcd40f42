"""That `./dev test` needs nothing but what it installs was tried since what decides about it changed."""

from __future__ import annotations

import os

import pytest

from bare import record
from lint.sources import ROOT

pytestmark = pytest.mark.lint


def test_all_rings_have_passed_in_a_bare_debian_since_what_they_need_changed() -> None:
    """In the bare Debian itself nothing is compared: that run will be the one."""
    if record.VARIABLE in os.environ:
        return
    try:
        passed = record.read(ROOT).checksum
    except FileNotFoundError:
        passed = ""
    if passed != record.checksum(ROOT):
        changed = f"one of these has changed: {', '.join(record.DECIDING)}"
        pytest.fail(f"run `sudo ./dev bare` and commit {record.PLACE}: {changed}", pytrace=False)
