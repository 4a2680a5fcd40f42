"""Root's service on the agent's machine, where it runs parts of steps within the agent's job of Slurm's: then the agent
starts no node of its own (`node.py`).

What runs there watches the agent itself: it ends with the agent, however that ends, whether or not the service is there
(`nodectl/stepd/termination.py`).
"""

import asyncio
import os
import stat

from nodectl.client.api.async_session import AsyncSession
from nodectl.client.command import Failed, GlobalOptions
from nodectl.config import Config, ConfigError
from nodectl.config_file.reader import DEFAULT_PATH, load

_SECONDS = 10.0  # for an answer; a service that hangs holds nobody up for longer


class Service:
    """One that has admitted the agent's job. `said`: in what, for people."""

    def __init__(self, config: Config, said: str, cpus: int) -> None:
        self.config = config
        self.socket = config.socket
        self.said = said
        self.cpus = cpus

    async def start(self) -> None:
        """It runs."""

    async def end(self) -> None:
        """It goes on; what it runs for this agent has ended, or ends with this process."""


class NoService(Exception):
    """None runs parts of this job; str() is why, one line."""


async def find(job: int) -> Service:
    """The machine's. Raises NoService."""
    settings = GlobalOptions()
    given = settings.config
    try:
        config = load(given or DEFAULT_PATH, must_exist=given is not None)
        status = os.stat(config.socket)
    except ConfigError as error:
        raise NoService(str(error)) from None
    except OSError:
        raise NoService("no service runs here") from None
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != 0:
        raise NoService(f"{config.socket} is no socket of root's")
    settings.config, settings.socket = None, config.socket
    try:
        async with asyncio.timeout(_SECONDS):
            told = await _asked(settings)
    except Failed as failed:
        raise NoService(str(failed)) from None
    except TimeoutError:
        raise NoService(f"the service at {config.socket} does not answer") from None
    try:
        number, place, cpus = told["job"], str(told["cgroup"]), int(str(told["cpus"]), 16)
    except (KeyError, ValueError):
        raise NoService(f"the service at {config.socket} makes no sense") from None
    if number != job:
        raise NoService(f"to the service this is a process of job {number}")
    return Service(config, f"the service, in {place}", cpus)


async def _asked(settings: GlobalOptions) -> dict[str, object]:
    """Raises Failed."""
    session = AsyncSession(settings, start_private=False)
    try:
        return dict(await session.request("SlurmJob", (), {}))
    finally:
        session.close()
