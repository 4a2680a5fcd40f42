"""Clients that are connected to a service over its socket, and what their steps cost."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from pathlib import Path
from typing import NoReturn

from bench.programs import TRUE
from nodectl.client.command import GlobalOptions
from nodectl.client.session import Session
from nodectl.kernel import pseudo_file
from nodectl.kernel.processes import cgroup_of
from rootful.node import Node

CLIENTS = 8


class Client:
    """A client that stays connected and asks for one step after the other."""

    def __init__(self, socket_path: str) -> None:
        settings = GlobalOptions()
        settings.socket, settings.config = socket_path, None
        self._session = Session(settings)

    def step(self, ntasks: int = 1) -> None:
        """One step of so many tasks, from the request to the event that ends it."""
        request = {"argv": [TRUE], "environment": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "ntasks": ntasks}
        if ntasks != 1:
            request["stdin"] = "none"  # as `nodectl run` says where nothing would come
        _, _, events = self._session.launch(request)
        record = None
        while record is None:
            messages, alive = events.read()
            told = [message["parameters"]["event"] for message in messages]  # type: ignore[index]
            record = next((event["record"] for event in told if event["event"] == "end"), None)
            if record is None and not alive:
                raise RuntimeError("the step runner went away")
        events.close()
        if record["exit_status"] != 0:
            raise RuntimeError(record["reason"])


class Rate:
    """Steps a second, and what one of them cost in seconds of CPU: service, runner, task and client together."""

    def __init__(self, steps: int, seconds: float, cpu: float) -> None:
        self.a_second = steps / seconds
        self.cpu = cpu / steps


def throughput(node: Node, seconds: float) -> Rate:
    """What several clients get, each in a process of its own."""
    before = _cpu_of_service(node) + _cpu_of_children()
    end = time.monotonic() + seconds
    counts = []
    for _ in range(CLIENTS):
        reader, writer = os.pipe()
        if os.fork() == 0:
            _ask_until(end, str(node.socket), writer)
        os.close(writer)
        counts.append(reader)
    total = sum(int(os.read(reader, 64)) for reader in counts)
    for reader in counts:
        os.close(reader)
        os.wait()
    return Rate(total, seconds, _cpu_of_service(node) + _cpu_of_children() - before)


def _ask_until(end: float, socket_path: str, writer: int) -> NoReturn:
    """A client's whole life, in a process just forked."""
    try:
        one, count = Client(socket_path), 0
        while time.monotonic() < end:
            one.step()
            count += 1
        os.write(writer, str(count).encode())
    finally:
        os._exit(0)


def _cpu_of_service(node: Node) -> float:
    """Seconds that its processes have used, and those of its steps, which live in its cgroup."""
    used = 0
    for pid in service_of(node):
        if f"/{node.cgroup_name}/" not in cgroup_of(pid):
            for thread in os.listdir(f"/proc/{pid}/task"):
                used += int(pseudo_file.read(f"/proc/{pid}/task/{thread}/schedstat").split()[0])
    steps = dict(line.split() for line in (Path(node.base) / "cpu.stat").read_text(encoding="ascii").splitlines())
    return used / 1e9 + int(steps["usage_usec"]) / 1e6


def _cpu_of_children() -> float:
    """Seconds that this process's children have used, once they have been waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def service_of(node: Node) -> list[int]:
    """The daemon and all processes below it: steps' too, as long as there are any."""
    assert node.daemon is not None
    found = [node.daemon.pid]
    for pid in found:  # which grows
        with contextlib.suppress(OSError):  # it has ended
            found += children_of(pid)
    return found


def children_of(pid: int) -> list[int]:
    """Child processes."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
