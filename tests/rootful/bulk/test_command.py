"""`nodectl bulk` as its user sees it: what is printed, kept in files, counted."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from directories import open_to_all
from nodectl.bulk.joblog import HEADER
from rootful.node import NOBODY, PATIENCE, Node, wait_until


def bulk(node: Node, *words: str, stdin: str | None = None, **how: object) -> subprocess.CompletedProcess[str]:
    """As an ordinary user, two at a time."""
    return node.nodectl("bulk", "-n2", *words, user=NOBODY, stdin=stdin, **how)  # type: ignore[arg-type]


def logged(path: Path) -> list[list[str]]:
    """The lines of a log, without its first, in the order of the commands."""
    text = path.read_text()
    assert text.startswith(HEADER)
    return sorted((line.split("\t") for line in text.splitlines()[1:]), key=lambda columns: int(columns[0]))


def test_each_value_makes_a_command_and_each_output_comes_whole(served: Node) -> None:
    done = bulk(served, "-k", "echo {#} {}; echo {} >&2", ":::", "a b", "c'd", "é")
    assert (done.returncode, done.stdout) == (0, "1 a b\n2 c'd\n3 é\n"), done.stderr
    assert sorted(done.stderr.splitlines()) == ["a b", "c'd", "é"]


def test_an_option_of_srun_without_a_meaning_here_changes_nothing(served: Node) -> None:
    done = bulk(served, "--licenses=solver", "echo", ":::", "a")
    assert (done.returncode, done.stdout) == (0, "a\n"), done.stderr


def test_lines_of_stdin_are_commands_of_the_users_shell(served: Node) -> None:
    done = bulk(served, stdin="echo $((1 + 1))\nid -u\n[[ a == a ]] && echo bash\n", env={"SHELL": "/bin/bash"})
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(["2", str(NOBODY.pw_uid), "bash"])


def test_outputs_of_many_writers_are_not_mixed(served: Node) -> None:
    """Four at a time write a line in pieces, to both streams, while the others do."""
    script = "for i in 1 2 3 4 5 6 7 8; do printf '{} '; echo $i; printf 'error {} ' >&2; echo $i >&2; done"
    done = served.nodectl("bulk", "-n4", "--tag", script, ":::", *map(str, range(40)), user=NOBODY)
    assert done.returncode == 0, done.stderr
    for text, word in ((done.stdout, ""), (done.stderr, "error ")):
        lines = text.splitlines()
        assert len(lines) == 320
        for start in range(0, 320, 8):
            value = lines[start].partition("\t")[0]
            assert lines[start : start + 8] == [f"{value}\t{word}{value} {number}" for number in range(1, 9)]


# A process of its own between: what a child of the tests has at most begins with what these have.
WATCHED = """
import os, resource, sys
status = os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:])
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


def test_an_output_is_larger_than_what_the_command_keeps_in_memory(served: Node) -> None:
    command = served.command("bulk", "-n1", "head -c {} /dev/zero", ":::", "100000000")
    with subprocess.Popen(["sha256sum"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        watched = subprocess.run(
            [sys.executable, "-IS", "-c", WATCHED, *command], stdout=reader.stdin, stderr=subprocess.PIPE, text=True,
            env=served.environment(), cwd=served.scratch, timeout=PATIENCE, check=False,
        )  # fmt: skip
        found, _ = reader.communicate(timeout=PATIENCE)
    status, most = map(int, watched.stderr.split())
    assert status == 0
    assert found.split()[0].decode() == hashlib.sha256(bytes(100_000_000)).hexdigest()
    assert most < 40 << 10  # KiB


def test_results_are_files_in_the_places_that_parallel_has(served: Node) -> None:
    done = bulk(served, "--results", "out", "echo {1}{2}; echo error >&2", ":::", "a/b", "c d", ":::", "1")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "a/b1", "c d1"]
    out = served.scratch / "out"
    files = {str(path.relative_to(out)): path.read_text() for path in out.rglob("*") if path.is_file()}
    used = [json.loads(files.pop(f"1/{name}/2/1/usage")) for name in ("a\\_b", "c d")]
    assert [row["seq"] for row in used] == [1, 2]
    assert files == {
        "1/a\\_b/2/1/stdout": "a/b1\n", "1/a\\_b/2/1/stderr": "error\n", "1/a\\_b/2/1/seq": "1",
        "1/c d/2/1/stdout": "c d1\n", "1/c d/2/1/stderr": "error\n", "1/c d/2/1/seq": "2",
    }  # fmt: skip


def test_results_in_names_of_the_users_own(served: Node) -> None:
    done = bulk(served, "-n1", "--results", "named/{#}-{}-{%}", "echo", ":::", "x")
    assert done.returncode == 0, done.stderr
    out = served.scratch / "named"
    used = out / "1-x-1.usage"
    assert json.loads(used.read_text())["command"] == "echo x"
    used.unlink()
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "1-x-1": "x\n", "1-x-1.err": "", "1-x-1.seq": "1",
    }  # fmt: skip


@pytest.mark.parametrize(("codes", "status"), [("0 0", 0), ("0 1 7", 2), ("1 " * 101, 101)])
def test_the_exit_status_is_the_number_of_failures(served: Node, codes: str, status: int) -> None:
    done = bulk(served, "exit {} #", ":::", *codes.split())
    assert done.returncode == status, done.stderr


def test_the_log_has_a_line_for_each_that_has_ended(served: Node) -> None:
    lines = "echo a; nosuch\necho a; exit 3\necho a; kill -9 $$\necho a; sleep 60\n"
    done = bulk(served, "--joblog", "ends.log", "--timeout", "2", stdin=lines)
    assert done.returncode == 4, done.stderr
    rows = logged(served.scratch / "ends.log")
    assert [row[6:8] for row in rows] == [["127", "0"], ["3", "0"], ["0", "9"], ["-1", "15"]]
    assert [row[5] for row in rows] == ["2"] * 4
    assert rows[1][8] == "echo a; exit 3"
    assert "timed out: echo a; sleep 60" in done.stderr


def test_what_fails_is_tried_again_and_printed_once(served: Node) -> None:
    script = "echo {} >> tries; echo said {}; [ $(grep -c {} tries) = 3 ]"
    done = bulk(served, "--retries", "3", "--joblog", "tries.log", script, ":::", "x", "y")
    assert (done.returncode, sorted(done.stdout.split("\n"))) == (0, ["", "said x", "said y"]), done.stderr
    assert sorted((served.scratch / "tries").read_text().split()) == ["x"] * 3 + ["y"] * 3
    assert len(logged(served.scratch / "tries.log")) == 2


def test_halt_begins_no_more_and_now_ends_those_that_run(served: Node) -> None:
    words = ("sleep {}; echo {} >> halted; [ {} = 0.01 ]", ":::", "60", "0", "0", "0")
    done = bulk(served, "--halt", "now,fail=1", "--joblog", "halt.log", *words)
    assert done.returncode == 1, done.stderr
    assert (served.scratch / "halted").read_text() == "0\n"
    assert [row[0] for row in logged(served.scratch / "halt.log")] == ["2"]


def test_a_stdin_that_never_ends_is_read_as_commands_end(served: Node) -> None:
    source = subprocess.Popen(["yes", "a value"], stdout=subprocess.PIPE)
    command = subprocess.run(
        served.command("bulk", "-n2", "--halt", "soon,done=150", "echo"), stdin=source.stdout, capture_output=True,
        env=served.environment(), cwd=served.scratch, timeout=2 * PATIENCE, check=False,
    )  # fmt: skip
    assert source.stdout is not None
    source.stdout.close()
    source.wait(PATIENCE)
    assert command.returncode == 0, command.stderr
    assert 150 <= command.stdout.count(b"a value\n") <= 151


def test_a_line_that_has_come_does_not_wait_for_the_next_one(served: Node) -> None:
    command = subprocess.Popen(
        served.command("bulk", "-n2", "echo"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=served.environment(), cwd=served.scratch,
    )  # fmt: skip
    assert command.stdin is not None
    assert command.stdout is not None
    for value in ("first", "second", "third"):
        command.stdin.write(f"{value}\n")
        command.stdin.flush()
        assert command.stdout.readline() == f"{value}\n"
    command.stdin.close()
    assert command.wait(PATIENCE) == 0
    command.stdout.close()


def test_slots_are_numbered_and_bound(served: Node) -> None:
    done = bulk(served, "echo {%} $PARALLEL_JOBSLOT $SLURM_LOCALID $PARALLEL_SEQ {#}", ":::", *"abcdefgh")
    assert done.returncode == 0, done.stderr
    rows = [line.split()[:5] for line in done.stdout.splitlines()]
    assert all(slot == own == str(int(local) + 1) and seq == number for slot, own, local, seq, number in rows)
    assert {row[0] for row in rows} <= {"1", "2"}


@pytest.mark.parametrize("words", [(), ("--lb",), ("--lb", "-k"), ("-u",)])
def test_the_slots_number_is_in_tags_and_in_lines_that_are_told(served: Node, words: tuple[str, ...]) -> None:
    done = bulk(served, "-v", "-n1", *words, "--tagstring", "t{%}", "echo {%} {}; sleep 0.1", ":::", "a", "b")
    assert done.returncode == 0, done.stderr
    tag = "" if words == ("-u",) else "t1\t"
    expected = [line for value in "ab" for line in (f"echo 1 {value}; sleep 0.1", f"{tag}1 {value}")]
    assert sorted(done.stdout.splitlines()) == sorted(expected)


def test_it_is_one_step_whose_record_stays_small(served: Node) -> None:
    done = bulk(served, "-J", "many", "true", ":::", *map(str, range(300)))
    assert done.returncode == 0, done.stderr
    record = json.loads(served.nodectl("show", "--json", f"{served.last_job()}.0").stdout)
    assert (record["name"], record["state"], record["ntasks"]) == ("many", "COMPLETED", 2)
    assert record["bulk"]["succeeded"] == 300
    assert len(json.dumps(record)) < 16_000


def test_within_a_job_it_is_a_step_of_it(served: Node) -> None:
    inner = shlex.join(served.command("bulk", "echo", "$SLURM_JOB_ID", ":::", "a"))
    done = served.run("-n1", "sh", "-c", f"echo $SLURM_JOB_ID; {inner}", user=NOBODY)
    assert done.returncode == 0, done.stderr
    outer, inside = done.stdout.split("\n")[:2]
    assert inside == f"{outer} a"


def test_root_does_not_write_where_the_links_of_another_user_lead(served: Node) -> None:
    """--uid with --results would: the files are the user's, and the directories between, too."""
    secret = served.dir / "secret"
    secret.mkdir(0o700)
    (secret / "seq").write_text("root's own")
    theirs = served.scratch / "theirs" / "1"
    theirs.mkdir(parents=True)
    (theirs / "a").symlink_to(secret)
    for path in (theirs.parent, theirs):
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    done = served.nodectl("bulk", "-n1", "--uid", "nobody", "--results", str(theirs.parent), "echo", ":::", "a")
    assert (secret / "seq").read_text() == "root's own"
    assert (done.returncode, done.stdout) == (255, "")
    assert done.stderr == (
        "nodectl: error: bulk has no --uid: let the whole command be the user's: "
        "runuser -u nobody -- nodectl bulk ...\n"
    )


def test_a_slots_number_names_no_directory(served: Node) -> None:
    """It is made before the command has a slot."""
    done = bulk(served, "--results", "by_slot/{%}/{}", "echo", ":::", "a")
    assert (done.returncode, done.stdout) == (255, "")
    assert done.stderr == "nodectl: error: --results: {%} names files, and no directories\n"
    assert not (served.scratch / "by_slot").exists()


def test_root_keeps_no_results_in_a_directory_of_another_user(served: Node) -> None:
    secret = served.dir / "secret2"
    secret.mkdir(0o700)
    (secret / "seq").write_text("root's own")
    theirs = served.scratch / "theirs2" / "1"
    theirs.mkdir(parents=True)
    (theirs / "a").symlink_to(secret)
    for path in (theirs.parent, theirs):
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    done = served.nodectl("bulk", "-n1", "--results", str(theirs.parent), "echo", ":::", "a")
    assert (done.returncode, done.stdout) == (255, "")
    assert "another user's hands" in done.stderr
    assert (secret / "seq").read_text() == "root's own"
    assert [path.name for path in secret.iterdir()] == ["seq"]


def test_nothing_is_left_of_the_outputs(served: Node, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    tmp_path.chmod(0o1777)
    done = bulk(served, "--tmpdir", str(tmp_path), "echo x; echo y >&2; exit {} #", ":::", "0", "1")
    assert done.returncode == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_seen_enough_ends_it(served: Node) -> None:
    command = subprocess.Popen(
        served.command("bulk", "-n2", "echo {}; sleep 0.05", ":::", *map(str, range(500))), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=served.environment(), cwd=served.scratch,
    )  # fmt: skip
    assert command.stdout is not None
    command.stdout.readline()
    command.stdout.close()
    assert command.wait(PATIENCE) == 141
    assert command.stderr is not None
    assert b"Traceback" not in command.stderr.read()
    command.stderr.close()


def test_signals_end_it_in_the_midst_of_printing(served: Node) -> None:
    """Nobody reads what it prints; Ctrl-C again and again ends it all the same."""
    stuck = subprocess.Popen(
        served.command("bulk", "-n2", "head -c 1000000 /dev/zero #", ":::", "a", "b"), stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env=served.environment(), cwd=served.scratch,
    )  # fmt: skip

    def prints() -> bool:
        return "pipe_write" in Path(f"/proc/{stuck.pid}/wchan").read_text()

    def ends() -> bool:
        stuck.send_signal(signal.SIGINT)
        return stuck.poll() is not None

    try:
        wait_until(prints, "it stands in a write")
        wait_until(ends, "it ends")
        assert stuck.returncode in (130, -signal.SIGINT)  # one may come when nothing is left to end
    finally:
        stuck.kill()
        stuck.communicate()


def test_a_full_disk_is_told_and_the_commands_are_not_taken_for_ended(served: Node) -> None:
    small = served.scratch / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=True)
    try:
        small.chmod(0o1777)
        script = "head -c {} /dev/zero || exit 1; sleep 0.1"
        words = ("--tmpdir", str(small), "--joblog", "full.log", "-k", script, ":::", "10", "3000000", "20")
        done = bulk(served, "-n1", *words)
        assert done.returncode == 255
        assert "may be incomplete: No space left on device" in done.stderr
        assert [row[0] for row in logged(served.scratch / "full.log")] == ["1"]
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)
