"""Imports asyncio into the daemon without TLS, which nobody speaks there: two megabytes of every idle service.

`main.py` imports this first. Other processes whose modules lie in this package have asyncio as it is, where they want
it at all.
"""

import sys

_had_tls = "ssl" in sys.modules or "asyncio" in sys.modules
if not _had_tls:
    sys.modules["ssl"] = None  # type: ignore[assignment]  # what cannot be imported asyncio does without
import asyncio  # noqa: E402, F401

if not _had_tls:
    del sys.modules["ssl"]  # plugins may want it
