"""The Status of a step from its stepd: however many users ask for it, the daemon asks the stepd once at a time.

A stepd that is in a plugin's hook does not answer, and each question that waits for it takes memory of the daemon.
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
