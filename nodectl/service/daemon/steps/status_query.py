"""Asks a stepd for the Status of a step: a single question at a time, however many users ask.

A stepd in a plugin's hook does not answer, and each question that waits for it takes memory of the daemon.
"""

import asyncio
from collections.abc import Mapping

from nodectl.service.daemon.steps.live import LiveStep


async def status(live: LiveStep, patience: float) -> Mapping[str, object]:
    """Return the step's Status, empty without an answer within `patience` seconds."""
    if live.status_task is None or live.status_task.done():
        live.status_task = asyncio.get_running_loop().create_task(live.ask("Status", {}))
    try:
        answer = await asyncio.wait_for(asyncio.shield(live.status_task), patience)
    except TimeoutError:
        return {}
    found: Mapping[str, Mapping[str, object]] = (answer or {}).get("parameters") or {}  # type: ignore[assignment]
    return found.get("step", {})
