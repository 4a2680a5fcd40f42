"""The service: it admits steps, starts and follows them, and remembers those that have ended.

One process, the daemon, runs as root and is the only part of nodectl that uses asyncio. Nothing here forks; other
processes are executed. `main.py` is the daemon's life, `node.py` the table of the methods of org.nodectl. The packages
stand in this order, and each imports only those before it: processes, reception, steps, history, jobs, recovery,
admission, methods.
"""

import sys

# asyncio takes along what it can get for TLS, which nobody speaks here: two megabytes of every idle service.
_had_tls = "ssl" in sys.modules or "asyncio" in sys.modules
if not _had_tls:
    sys.modules["ssl"] = None  # type: ignore[assignment]  # what cannot be imported asyncio does without
import asyncio  # noqa: E402, F401

if not _had_tls:
    del sys.modules["ssl"]  # plugins may want it
