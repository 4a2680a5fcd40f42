"""Fixtures of the vm ring: nodectl as the service of a machine that may be broken."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from vm import service

PATIENCE = 400  # seconds; a test with what its fixtures do


def _out_of_time(_number: int, _frame: object) -> None:
    raise TimeoutError(f"the test was not done after {PATIENCE} s")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests restart services, kill daemons and make accounts: never outside of the ring's machine."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.vm)
            if "NODECTL_TEST_VM" not in os.environ:
                item.add_marker(pytest.mark.skip(reason="for a machine of its own: ./dev vm"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """A test that hangs fails, and those after it are run."""
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(PATIENCE)
    try:
        return (yield)
    finally:
        signal.alarm(0)


def is_there(node: pytest.Item | pytest.Module) -> bool:
    """Whether the service is, from begin to end: it comes and goes, or there is none."""
    return not (node.get_closest_marker("deb") or node.get_closest_marker("nodes"))


@pytest.fixture(scope="module", autouse=True)
def logged(request: pytest.FixtureRequest) -> Iterator[None]:
    """The service logs no traceback. Looked at once for all tests of a module: a program costs much under emulation."""
    began = service.since()
    yield
    if is_there(request.node):
        assert "Traceback" not in service.logged(began)


@pytest.fixture(autouse=True)
def served(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test begins with the service as installed, with the lines in the configuration that it, or its module, names
    `SERVICE`; it leaves that, and nothing of a step.
    """
    if not is_there(request.node):
        yield
        return
    settings = vars(request.function).get("SERVICE", getattr(request.module, "SERVICE", ""))
    service.settle(settings)
    yield
    try:
        if service.leftovers():  # of a test that failed: ended as its own configuration has it
            service.end_steps()
            service.assert_clean()
    finally:
        service.restore(settings)
    service.assert_clean()
