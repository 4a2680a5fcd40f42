"""The log in a real journal: systemd's own journald, in a mount namespace of its own, takes and finds the lines."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from needs import lacks
from rootful.node import Node, wait_until

pytestmark = [pytest.mark.systemd, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

JOURNALD = Path("/lib/systemd/systemd-journald")
# A journal of the test's own, below a /run that nobody else sees. The daemon's stderr is a stream of it, as
# systemd would make it.
BEGIN = """
mount -t tmpfs tmpfs /run/systemd && mkdir -p /run/systemd/journal /run/log || exit
mount -t tmpfs tmpfs /run/log && mkdir -p /run/log/journal || exit
{journald} >/dev/null 2>&1 &
journald=$!
trap 'kill $daemon; wait $daemon; kill $journald; wait' EXIT
tries=300
until [ -S /run/systemd/journal/stdout ]; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || exit
    sleep 0.1
done
systemd-cat sh -c 'exec env JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) "$0" "$@"' {daemon} </dev/null &
daemon=$!
echo begun
while read -r match; do
    journalctl --sync
    journalctl --quiet -o json --directory /run/log/journal $match </dev/null
    echo end
done
"""


@pytest.mark.skipif(lacks(JOURNALD), reason="no systemd-journald here")
def test_lines_are_found_by_job_step_user_and_name() -> None:
    node = Node()
    try:
        script = BEGIN.format(journald=JOURNALD, daemon=shlex.join(node.command("daemon")))
        with subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=node.environment(),
        ) as journal:  # fmt: skip
            assert journal.stdin is not None
            assert journal.stdout is not None
            assert journal.stdout.readline() == "begun\n"

            def found(match: str) -> list[dict[str, str]]:
                print(match, file=journal.stdin, flush=True)
                return [json.loads(line) for line in iter(journal.stdout.readline, "end\n")]  # type: ignore[union-attr]

            wait_until(node.socket.exists, "the daemon listens")
            assert node.run("true").returncode == 0
            assert node.run("--uid=nobody", "sh", "-c", "exit 3").returncode == 3
            wait_until(lambda: found("NODECTL_JOB=2"), "the journal has it")
            (line,) = found("NODECTL_JOB=2")
            assert line["MESSAGE"].startswith("nodectl daemon: ended step=2.0 uid=65534 ")
            assert (line["NODECTL_STEP"], line["USER_ID"], line["SYSLOG_IDENTIFIER"]) == ("2.0", "65534", "nodectl")
            assert [one["NODECTL_JOB"] for one in found("NODECTL_MESSAGE=step-ended")] == ["1", "2"]
            assert found("USER_ID=65534 NODECTL_STEP=1.0") == []
            assert found("--unit=nodectld.service NODECTL_JOB=2") == [line], "whichever unit its sender lives in"
            journal.stdin.close()
            assert journal.wait(60) is not None
        node.assert_clean()
    finally:
        node.close()
