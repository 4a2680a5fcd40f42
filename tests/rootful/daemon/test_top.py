"""`nodectl top` beside a real service: as Textual's own driver presses its keys, and in a real terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, RichLog, Static

from needs import lacks
from nodectl.client.command import Failed, GlobalOptions
from nodectl.placement.machine.topology import read
from nodectl.view.live.connection import Connections, connect
from nodectl.view.live.watcher import Watcher
from nodectl.view.top.app import Top
from nodectl.view.top.dialogs import Choice, Output, Reading
from nodectl.view.top.gpus import GpuReader
from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_until

TIMES_LOOKED = 100


def settings(node: Node) -> GlobalOptions:
    given = GlobalOptions()
    given.config, given.socket = str(node.config_path), str(node.socket)
    return given


@contextlib.contextmanager
def step(node: Node, name: str, user: Any = NOBODY) -> Iterator[str]:
    """A running step that writes a line, and one that is longer than a screen, and waits; its JOB.STEP."""
    client = node.popen(
        "-l",
        f"--job-name={name}",
        "sh",
        "-c",
        "echo hello; printf '%090d\\n' 7; read line",
        user=user,
        stdin=subprocess.PIPE,
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "0: hello\n"
        yield f"{node.last_job()}.0"
    finally:
        client.communicate("\n", PATIENCE)


def piloted(node: Node, play: Callable[[Top, Pilot[None]], Awaitable[None]], size: tuple[int, int]) -> None:
    """The application with somebody who presses keys."""

    async def whole() -> None:
        connections = Connections(settings(node))
        watcher = Watcher(connections.connect)
        app = Top(watcher, connections, read("/", every_cache=True), interval=0.2)
        async with app.run_test(size=size) as pilot:
            await play(app, pilot)
        watcher.close()

    asyncio.run(asyncio.wait_for(whole(), 2 * PATIENCE))


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Waits; `piloted` ends what never comes."""
    while not condition():
        await pilot.pause(0.05)


def names(app: Top) -> list[str]:
    return [str(key.value) for key in app.query_one(DataTable).rows]


def cell(app: Top, name: str, title: str) -> str:
    return str(app.query_one(DataTable).get_cell(name, title)).strip() if name in names(app) else ""


def test_steps_are_listed_filtered_explained_suspended_and_signalled(shared_node: Node) -> None:
    with step(shared_node, "solver") as solver, step(shared_node, "other", OTHER) as other:

        async def play(app: Top, pilot: Pilot[None]) -> None:
            await until(pilot, lambda: {solver, other} <= set(names(app)))
            assert (cell(app, solver, "NAME"), cell(app, solver, "USER")) == ("solver", "nobody")
            await until(pilot, lambda: cell(app, solver, "CPU%") not in ("", "-"))
            assert "socket 0" in str(app.query_one("#machine", Static).content)
            await pilot.press("slash", *"solv", "enter")
            assert names(app) == [solver]
            await pilot.press("e")
            await until(pilot, lambda: isinstance(app.screen, Reading))
            assert "rule: " in str(app.screen.query_one(Static).content)
            await pilot.press("escape", "o")
            await until(pilot, lambda: isinstance(app.screen, Output))
            log = app.screen.query_one(RichLog)
            await until(pilot, lambda: any("7" in line.text for line in log.lines))
            assert "hello" in log.lines[0].text
            assert max(line.cell_length for line in log.lines) <= log.scrollable_content_region.width
            await pilot.press("escape", "z")
            await until(pilot, lambda: cell(app, solver, "STATE") == "stopped")
            await pilot.press("z")
            await until(pilot, lambda: cell(app, solver, "STATE") == "runs")
            await pilot.press("s")
            await until(pilot, lambda: isinstance(app.screen, Choice))
            await pilot.press("end", "enter")  # KILL
            await until(pilot, lambda: not names(app))
            await pilot.press("escape")
            assert app.query_one("#filter", Input).value == ""
            await until(pilot, lambda: names(app) == [other])

        piloted(shared_node, play, (80, 24))
    record = shared_node.record(int(solver.partition(".")[0]))
    assert (record["state"], "signal 9" in str(record["reason"])) == ("CANCELLED", True)


def test_an_empty_table_says_why(node: Node) -> None:
    async def play(app: Top, pilot: Pilot[None]) -> None:
        nothing = app.query_one("#nothing", Static)
        await until(pilot, lambda: nothing.display)
        assert str(nothing.content).startswith("Nothing runs, nothing waits: `nodectl run hostname` starts a step")
        with step(node, "solver") as solver:
            await until(pilot, lambda: names(app) == [solver] and not nothing.display)
            await pilot.press("slash", *"nosuch", "enter")
            assert nothing.display
            assert str(nothing.content) == "no line has these words; Esc shows all"

    piloted(node, play, (80, 24))


def test_a_service_that_goes_and_comes_is_told_and_found_again(node: Node) -> None:
    async def play(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.seen > 0)
        node.stop()
        await until(pilot, lambda: "no service" in str(app.query_one("#head", Static).content))
        node.start()
        await until(pilot, lambda: "0 running" in str(app.query_one("#head", Static).content))

    piloted(node, play, (200, 60))


def test_how_busy_gpus_are_stands_in_the_first_line(shared_node: Node, tmp_path: Path) -> None:
    for card, busy in ((0, 87), (1, 3)):
        file = tmp_path / f"sys/class/drm/card{card}/device/gpu_busy_percent"
        file.parent.mkdir(parents=True)
        file.write_text(f"{busy}\n")

    async def play(app: Top, pilot: Pilot[None]) -> None:
        app._gpus = GpuReader(str(tmp_path))
        await until(pilot, lambda: "GPU 87% 3%" in str(app.query_one("#head", Static).content))

    piloted(shared_node, play, (80, 24))


def test_who_leaves_does_not_wait_for_a_service_that_hangs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    ask = Watcher._ask

    def asked(self: Watcher) -> None:
        told.append("asked")
        try:
            ask(self)
        except Failed as failed:
            told.append(str(failed))
            raise

    async def play(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.seen > 0)
        assert node.daemon is not None
        os.kill(node.daemon.pid, signal.SIGSTOP)
        told.clear()
        while not told:
            await pilot.press("space")
            await pilot.pause(0.05)
        await pilot.press("q")

    monkeypatch.setattr(Watcher, "_ask", asked)
    try:
        piloted(node, play, (80, 24))
    finally:
        assert node.daemon is not None
        os.kill(node.daemon.pid, signal.SIGCONT)
    assert told[-1].endswith("the service went away before it answered"), "its patience was over first"


def test_looking_costs_the_service_less_than_a_hundredth_of_a_cpu(shared_node: Node) -> None:
    def spent() -> float:
        times = [psutil.Process(pid).cpu_times() for pid in service]
        return sum(one.user + one.system for one in times)

    with step(shared_node, "solver"):
        watcher = Watcher(lambda: connect(settings(shared_node)))
        assert watcher.look(at_once=True).running == 1
        assert shared_node.daemon is not None
        service = [
            shared_node.daemon.pid,
            *shared_node.service("nodectl-listen"),
            *shared_node.service("nodectl-session"),
        ]
        assert len(service) >= 3
        before = spent()
        for _ in range(TIMES_LOOKED):  # what it costs at one look a second
            watcher.look(at_once=True)
        assert spent() - before < 0.01 * TIMES_LOOKED
        watcher.close()


@pytest.mark.skipif(lacks("tmux"), reason="no tmux here")
def test_a_user_has_it_in_a_plain_terminal_of_80_by_24(shared_node: Node, tmp_path: Path) -> None:
    tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]
    top = [
        "setpriv",
        f"--reuid={NOBODY.pw_uid}",
        f"--regid={NOBODY.pw_gid}",
        "--clear-groups",
        *shared_node.command("top"),
    ]

    def screen() -> str:
        return subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=False).stdout

    with step(shared_node, "solver") as solver, step(shared_node, "secret", OTHER):
        begun = ["new-session", "-d", "-x", "80", "-y", "24", "env", "TERM=xterm", "LANG=C.UTF-8", *top]
        subprocess.run([*tmux, *begun], check=True, env=shared_node.environment(), cwd=os.fspath(shared_node.scratch))
        try:
            wait_until(lambda: all(word in screen() for word in (solver, OTHER.pw_name, "Help")), "it is drawn")
            lines = screen().splitlines()
            assert lines[-1].split()[:2] == ["q", "Quit"]
            assert "socket 0" in lines[1]
            assert "secret" not in screen(), "the name of another user's step"
            subprocess.run([*tmux, "send-keys", "q"], check=True)
            wait_until(lambda: not _lives(tmux), "it has left")
        finally:
            subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)


def _lives(tmux: list[str]) -> bool:
    return subprocess.run([*tmux, "has-session"], capture_output=True, check=False).returncode == 0


def test_without_a_terminal_it_names_what_prints(shared_node: Node) -> None:
    refused = shared_node.nodectl("top")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "`nodectl ps` and `nodectl queue`" in refused.stderr
