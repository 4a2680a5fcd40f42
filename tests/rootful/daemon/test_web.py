"""`nodectl web` beside a real service: what its user sees in a real browser, and what nobody else gets."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from needs import lacks
from nodectl.model.step_number import BATCH
from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_until

ANSWERS = ("view", "machine", "launch?job={job}&step=0", "explain?job={job}&step=0", "ended", "report")
HOSTILE = "<img src=x onerror=document.title='broken'>"


class Page(NamedTuple):
    """A page that is served."""

    port: int
    token: str
    path: str = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/#{self.token}"

    def get(self, what: str, method: str = "GET", **headers: str) -> tuple[int, str, Mapping[str, str]]:
        """A request without the token, unless it is among the headers; the answer's status, text and headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        if self.path:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(self.path)
        connection.request(method, what, headers=headers)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
        connection.close()
        return found

    def api(self, what: str) -> tuple[int, str]:
        """What the page's script would get."""
        return self.get(f"/api/{what}", Authorization=f"Bearer {self.token}")[:2]


@contextmanager
def served(node: Node, listen: str = "127.0.0.1:0", user: Any = NOBODY) -> Iterator[Page]:
    who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    process = subprocess.Popen(
        node.command("web", "--listen", listen), stdout=subprocess.PIPE, text=True, env=node.environment(), **who
    )
    try:
        assert process.stdout is not None
        address, _, token = process.stdout.readline().strip().partition("/#")
        path = listen.removeprefix("unix:") if listen.startswith("unix:") else ""
        page = Page(int(address.rpartition(":")[2]), token, path)
        wait_until(lambda: _answers(page), "the page is there")
        yield page
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) in (0, 130)


def _answers(page: Page) -> bool:
    try:
        return page.get("/")[0] == 200
    except OSError:
        return False


@contextmanager
def step(node: Node, name: str, user: Any = NOBODY) -> Iterator[str]:
    """A running step; its job."""
    client = node.popen(f"--job-name={name}", "sh", "-c", "echo runs; read line", user=user, stdin=subprocess.PIPE)
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "runs\n"
        yield str(node.last_job())
    finally:
        client.communicate("\n", PATIENCE)


def test_who_has_no_token_is_told_nothing_and_no_page_of_another_may_ask(shared_node: Node) -> None:
    with step(shared_node, "secret") as job, served(shared_node) as page:
        for what in (answer.format(job=job) for answer in ANSWERS):
            assert page.api(what)[0] == 200, what
            for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Basic {page.token}"},
                            {"Cookie": f"token={page.token}"}):  # fmt: skip
                status, text, _ = page.get(f"/api/{what}", **headers)
                assert (status, "secret" in text) == (401, False)
            assert page.get(f"/api/{what}", Authorization=f"Bearer {page.token[:-1]}x")[0] == 401
        right = {"Authorization": f"Bearer {page.token}"}
        assert page.get("/api/view", Host="evil.example", **right)[0] == 400, "a name that was made to lead here"
        assert page.get("/", Host="evil.example")[0] == 400
        asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "GET",
                 "Access-Control-Request-Headers": "authorization"}  # fmt: skip
        status, _, found = page.get("/api/view", "OPTIONS", **asked, **right)
        assert (status, [name for name in found if name.startswith("access-control")]) == (405, [])
        assert page.get("/api/view", "POST", **right)[0] == 405
        for what in ("/", "/page.js", "/page.css", "/api/view", "/absent"):
            found = page.get(what)[2]
            assert "default-src 'none'" in found["content-security-policy"]
            assert "frame-ancestors 'none'" in found["content-security-policy"]
            assert (found["x-content-type-options"], found["cache-control"]) == ("nosniff", "no-store")
            assert "set-cookie" not in found
        assert page.get("/../page.py", **right)[0] == page.get("/..%2fserver.py", **right)[0] == 404


def test_connections_that_say_nothing_keep_nobody_out(shared_node: Node) -> None:
    with served(shared_node) as page:
        silent = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(80)]
        try:
            for _ in range(3):
                assert page.api("view")[0] == 200
            silent += [socket.create_connection(("127.0.0.1", page.port)) for _ in range(80)]
            for one in silent[-80:]:
                one.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")  # and no more
            assert page.api("view")[0] == 200
        finally:
            for one in silent:
                one.close()


def test_a_user_sees_what_is_the_users(shared_node: Node) -> None:
    with step(shared_node, "mine") as mine, step(shared_node, "theirs", OTHER) as theirs, served(shared_node) as page:
        rows = {row["job"]: row for row in json.loads(page.api("view")[1])["rows"]}
        assert rows[int(mine)]["title"] == "mine"
        assert rows[int(theirs)]["step"] is None
        assert "mine" in page.api("machine")[1]
        assert "Launch of step" in page.api(f"launch?job={mine}&step=0")[1]
        assert "rule: " in page.api(f"explain?job={mine}&step=0")[1]
        for what in (f"launch?job={theirs}&step=0", f"explain?job={theirs}&step=0", "launch?job=99999&step=0"):
            assert page.api(what)[0] == 404
        for what in ("launch?job=x&step=0", "launch", "explain?job=1&step=-1"):
            assert page.api(what)[0] == 400


def test_an_ended_step_of_an_array_has_the_name_of_its_task_and_a_drained_machine_is_told(shared_node: Node) -> None:
    words = ("submit", "--wait", "--parsable", "--output=/dev/null", "-a7", "--wrap", "true")
    array = shared_node.nodectl(*words, user=NOBODY).stdout.strip()
    with served(shared_node) as page:
        assert f"{array}_7.batch" in {row["name"] for row in json.loads(page.api("ended")[1])}
        assert "Launch of step " + f"{array}_7.batch" in page.api(f"launch?job={array}&step={BATCH}")[1]
        assert json.loads(page.api("view")[1])["away"] == ""
    shared_node.call("UpdateNode", state="drain", reason="new disk")
    try:
        with served(shared_node) as page:
            assert json.loads(page.api("view")[1])["away"] == "DRAINED: new disk"
    finally:
        shared_node.call("UpdateNode", state="resume")


def test_the_end_of_a_jobs_output_is_read_with_the_users_own_rights(shared_node: Node) -> None:
    written = shared_node.scratch / "written"
    words = ("submit", "--wait", f"--output={written}", "--wrap", "seq 300; printf '\\033[2J'")
    assert shared_node.nodectl(*words, user=NOBODY).returncode == 0
    job = shared_node.last_job()
    with served(shared_node) as page:
        status, text = page.api(f"output?job={job}")
        assert (status, text.splitlines()[:2], text.splitlines()[-1]) == (200, ["202", "203"], "\\x1b[2J")
        assert page.api(f"output?job={job}&step={BATCH}")[1] == text
        assert page.api(f"output?job={job}&step=0")[0] == 404, "there is no such step"
        written.unlink()
        written.symlink_to("/etc/shadow")
        status, text = page.api(f"output?job={job}")
        assert (status, "Permission denied" in text) == (404, True)
    with served(shared_node, user=OTHER) as page:
        assert page.api(f"output?job={job}")[0] == 404


def test_what_a_further_step_has_written_to_its_own_file_is_shown(shared_node: Node) -> None:
    steps = (("--output=own", "echo", "of a step"), ("true",))
    lines = "; ".join(shlex.join(shared_node.command("run", "--overlap", *words)) for words in steps)
    done = shared_node.nodectl("submit", "--wait", "--output=/dev/null", "--wrap", lines, user=NOBODY)
    assert done.returncode == 0, done.stderr
    job = shared_node.last_job()
    with served(shared_node) as page:
        assert page.api(f"output?job={job}&step=0") == (200, "of a step")
        assert page.api(f"output?job={job}&step=1") == (200, ""), "it wrote where the job does"


def test_a_socket_is_its_owners_alone_and_goes_with_the_command(shared_node: Node) -> None:
    path = str(shared_node.scratch / "page")
    with served(shared_node, f"unix:{path}") as page:
        mode = os.stat(path)
        assert (mode.st_mode & 0o777, mode.st_uid) == (0o600, NOBODY.pw_uid)
        assert page.get("/api/view", Host="localhost")[0] == 401
        assert page.api("view")[0] == 200
        again = shared_node.nodectl("web", "--listen", f"unix:{path}", user=NOBODY)
        assert (again.returncode, "in use" in again.stderr) == (1, True)
    assert not os.path.exists(path)


def test_a_socket_that_a_killed_one_left_is_in_nobodys_way(shared_node: Node) -> None:
    path = str(shared_node.scratch / "left")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        left.listen()
    with served(shared_node, f"unix:{path}") as page:
        assert page.api("view")[0] == 200


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "127.0.0.1", "[::]:80", "unix:", "127.0.0.1:70000", "localhost:0"])
def test_it_listens_nowhere_that_others_reach(shared_node: Node, listen: str) -> None:
    refused = shared_node.nodectl("web", "--listen", listen)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "unix:PATH or 127.0.0.1:PORT" in refused.stderr


def dumped(address: str, tmp_path: Path, *options: str) -> str:
    """The page as a browser has it when its scripts have run."""
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    browser += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=5000", "--dump-dom"]
    browser += [*options, address]
    done = subprocess.run(browser, capture_output=True, text=True, check=False, timeout=4 * PATIENCE)
    assert done.stdout, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(lacks("chromium"), reason="no chromium here")
def test_a_page_without_jobs_says_how_to_start_one_on_a_telephone_too(node: Node, tmp_path: Path) -> None:
    with served(node) as page:
        shown = dumped(page.address, tmp_path)
        assert "Nothing runs, nothing waits: `nodectl run hostname` starts a step" in shown
        assert 'id="hint" class="faint" hidden' in shown, "of lines, of which there are none"
        style = page.get("/page.css")[1]
    # The same page without its scripts, with one that measures; the page itself allows no script of others.
    still = re.sub(r"<script.*?</script>|<link[^>]*>", "", shown)
    measure = "for (const it of document.querySelectorAll('.scroll')) it.title = it.scrollWidth - it.clientWidth"
    (tmp_path / "still.html").write_text(f"{still}<style>{style}</style><script>{measure}</script>", encoding="utf-8")
    on_a_telephone = dumped(f"file://{tmp_path}/still.html", tmp_path, "--window-size=390,844")
    assert re.findall(r'class="scroll" title="(-?\d+)"', on_a_telephone) == ["0", "0"], "nothing is cut off"


@pytest.mark.skipif(lacks("chromium"), reason="no chromium here")
def test_a_browser_shows_it_and_runs_nothing_that_a_user_has_named(shared_node: Node, tmp_path: Path) -> None:
    with step(shared_node, HOSTILE) as job, served(shared_node) as page:
        shown = dumped(page.address, tmp_path)
        assert f'data-name="{job}.0"' in shown
        assert f">{HOSTILE}</td>" in unescape(shown), "as text"
        assert "<img src=x" not in shown
        assert "<title>nodectl: " in shown
        assert 'id="machine" alt="The machine: who is on which core" src="blob:' in shown
        assert page.token not in shown
