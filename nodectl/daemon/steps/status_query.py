"""What a step's runner says of it, asked for by many: one question at a time is under way, however many wait for it.

A runner that is in a plugin's hook does not answer, and every question kept for it is memory of the daemon's.
"""

import asyncio
from collections.abc import Mapping

from nodectl.daemon.steps.live import LiveStep


async def status(live: LiveStep, patience: float) -> Mapping[str, object]:
    """The step's Status, empty where there is no answer within `patience` seconds."""
    if live.status_task is None or live.status_task.done():
        live.status_task = asyncio.get_running_loop().create_task(live.ask("Status", {}))
    try:
        answer = await asyncio.wait_for(asyncio.shield(live.status_task), patience)
    except TimeoutError:
        return {}
    found: Mapping[str, Mapping[str, object]] = (answer or {}).get("parameters") or {}  # type: ignore[assignment]
    return found.get("step", {})
