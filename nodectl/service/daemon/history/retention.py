"""Forgets expired records also while no steps end: at the daemon's start, then each hour, a little at a time."""

import asyncio
import sqlite3

from nodectl import messages
from nodectl.service.daemon.history.store import Store

_SECONDS = 3600.0
_SECONDS_MORE = 0.1  # others have their turns in between


def begin(store: Store) -> None:
    """Forget expired records from now on, as long as the event loop runs."""
    more = False
    try:
        more = store.forget_old()
    except sqlite3.Error as error:
        messages.tell("history-not-written", f"forget old steps and jobs: {error}")
    asyncio.get_running_loop().call_later(_SECONDS_MORE if more else _SECONDS, begin, store)
