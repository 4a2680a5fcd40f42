"""Many steps at once with asyncio; those for which the machine has no room wait for their turns."""

import asyncio

from nodectl.client import AsyncClient


async def main() -> None:
    async with AsyncClient() as node:
        steps = [node.run(["sh", "-c", f"echo $(({n} * {n}))"], capture_output=True) for n in range(8)]
        print(*[done.text.strip() for done in await asyncio.gather(*steps)])

        try:
            async with asyncio.timeout(0.5):
                await node.run(["sleep", "1000"])
        except TimeoutError:
            print("given up, and the step with it")

        job = await node.submit("cube", text="#!/bin/sh\nexit $((3 * 3 * 3))\n", output="/dev/null")
        ended = await node.wait_for_job(job)
        print("the job", ended.name, "ended with", ended.exit_code)


asyncio.run(main())
