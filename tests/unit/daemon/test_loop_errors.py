"""An exception in the event loop that no call waits for, also where the daemon has no descriptor left."""

from __future__ import annotations

import asyncio
import os
import resource
import sys

import pytest

from nodectl.service.daemon import loop_errors


def fails() -> None:
    raise OSError(24, os.strerror(24), "the file of a step")


def test_a_failed_callback_is_told_without_an_import_or_a_descriptor_and_the_loop_goes_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def act() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(loop_errors.tell)
        loaded = set(sys.modules)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            loop.call_soon(fails)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert set(sys.modules) == loaded

    asyncio.run(act())
    said = capfd.readouterr().err.splitlines()
    assert "Traceback (most recent call last):" in said[1]
    assert any(f"{__file__}, line " in line and line.endswith("in fails") for line in said)
    assert said[-1].endswith("OSError: [Errno 24] Too many open files: 'the file of a step'")


def test_an_error_of_the_start_is_one_line_with_the_place_of_the_call() -> None:
    with pytest.raises(OSError, match="Too many") as caught:
        fails()
    line = loop_errors.in_one_line(caught.value)
    assert line.startswith("[Errno 24] Too many open files: 'the file of a step': ")
    assert line.endswith("in fails")
