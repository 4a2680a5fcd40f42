"""Root's service on the agent's machine, running parts of steps within the agent's job of Slurm's.

With it the agent starts no node of its own (`node.py`). The service's steps watch the agent itself: they end with the
agent, in whatever way it ends, whether or not the service is there (`nodectl/launch/stepd/termination.py`).
"""

import asyncio
import os
import stat

from nodectl.client.api.async_session import AsyncSession
from nodectl.client.command import Failed, GlobalOptions
from nodectl.model.config import Config, ConfigError
from nodectl.service.config_file.reader import DEFAULT_PATH, load

_SECONDS = 10.0  # for an answer; a service that hangs delays the agent no longer


class Service:
    """A service which has admitted the agent's job. `said`: a phrase for users that names the cgroup of the job."""

    def __init__(self, config: Config, said: str, cpus: int) -> None:
        self.config = config
        self.socket = config.socket
        self.said = said
        self.cpus = cpus

    async def start(self) -> None:
        """Do nothing: the service runs."""

    async def end(self) -> None:
        """Do nothing: the service goes on. Steps of this agent have ended, or end with this process."""


class NoService(Exception):
    """Raised where no service runs parts of this job; str() is the reason, a single line."""


async def find(job: int) -> Service:
    """Return the machine's service. Raises NoService."""
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
    """Return the service's answer to SlurmJob. Raises Failed."""
    session = AsyncSession(settings, start_private=False)
    try:
        return dict(await session.request("SlurmJob", (), {}))
    finally:
        session.close()
