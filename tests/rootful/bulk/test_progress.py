"""How far a bulk that runs is, in `queue`, `ps` and `show`, where its user looks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from rootful.node import NOBODY, OTHER, PATIENCE, Node, wait_until


@contextmanager
def begun(node: Node, *values: str, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """A bulk of a user whose second command fails, and whose fourth waits until the end of the block."""
    gate = node.scratch / "go_on"
    gate.unlink(missing_ok=True)
    script = f"[ {{}} != 2 ] || exit 1; [ {{}} -lt 4 ] || until [ -e {gate} ]; do sleep 0.05; done"
    words = node.command("bulk", "-j2", "-k", script, *((":::", *values) if values else ()))
    client = subprocess.Popen(
        words, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=node.scratch, env=node.environment(),
        user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[],
    )  # fmt: skip
    try:
        yield client
    finally:
        gate.touch()
        _, said = client.communicate(timeout=PATIENCE)
    assert client.returncode == 1, said


def says(node: Node, command: str, words: str) -> bool:
    done = node.nodectl(command, user=NOBODY)
    assert done.returncode == 0, done.stderr
    return words in done.stdout


def test_queue_ps_and_show_tell_how_many_commands_of_a_bulk_are_done(served: Node) -> None:
    with begun(served, *"123456"):
        wait_until(lambda: says(served, "queue", "; 3 of 6 done, 1 failed"), "queue tells it")
        assert says(served, "ps", "3 of 6 done, 1 failed")
        (step,) = json.loads(served.nodectl("ps", "--json", user=NOBODY).stdout)["steps"]
        assert step["commands"] == {"done": 3, "failed": 1, "total": 6}
        (job,) = json.loads(served.nodectl("queue", "--json", user=NOBODY).stdout)["jobs"]
        assert job["commands"] == step["commands"]
        assert "3 of 6 done, 1 failed" in served.nodectl("show", "last", user=NOBODY).stdout
        of_other = json.loads(served.nodectl("queue", "--json", user=OTHER).stdout)["jobs"]
        assert [job.get("commands") for job in of_other] == [None]


def test_without_a_known_end_only_the_done_ones_are_told(served: Node) -> None:
    writer = subprocess.Popen(["sh", "-c", "echo 1; echo 2; echo 3; echo 4; exec sleep 60"], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    try:
        with begun(served, stdin=writer.stdout.fileno()):
            writer.stdout.close()
            wait_until(lambda: says(served, "queue", "; 3 done, 1 failed"), "queue tells it")
            writer.kill()
            wait_until(lambda: says(served, "queue", "; 3 of 4 done, 1 failed"), "the input has ended")
    finally:
        writer.kill()
        writer.wait()


def test_a_service_that_was_started_again_knows_how_far_a_bulk_is(node: Node) -> None:
    with begun(node, *"12345"):
        wait_until(lambda: says(node, "queue", "; 3 of 5 done, 1 failed"), "queue tells it")
        node.restart()
        wait_until(lambda: says(node, "ps", "3 of 5 done, 1 failed"), "the new service tells it")
