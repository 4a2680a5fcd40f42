"""Where the tasks' streams lead: the client's own files where possible, else whole lines, and nothing is lost."""

from __future__ import annotations

import hashlib
import os
import pty
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, Node, wait_until
from rootful.relays import relay_of


@pytest.fixture
def place(shared_node: Node, request: pytest.FixtureRequest) -> Path:
    """A directory where the user may write, of this test's own."""
    path: Path = shared_node.scratch / request.node.name.replace("/", "_")
    path.mkdir()
    path.chmod(0o777)
    return path


def test_a_tasks_streams_are_the_very_files_of_the_client(shared_node: Node, place: Path) -> None:
    files = [place / name for name in ("in", "out", "err")]
    for path in files:
        path.touch()
        path.chmod(0o666)
    script = "import os, sys; os.write(1, repr([(s.st_dev, s.st_ino) for s in map(os.fstat, (0, 1, 2))]).encode())"
    with files[0].open("rb") as stdin, files[1].open("wb") as stdout, files[2].open("wb") as stderr:
        client = shared_node.popen("python3", "-c", script, user=NOBODY, stdin=stdin, stdout=stdout, stderr=stderr)
        assert client.wait(PATIENCE) == 0
    expected = [(path.stat().st_dev, path.stat().st_ino) for path in files]
    assert files[1].read_text(encoding="ascii") == repr(expected)


@pytest.mark.parametrize(("ntasks", "width"), [(1, 1), (10, 1), (11, 2)])
def test_labels_are_as_wide_as_the_widest(shared_node: Node, ntasks: int, width: int) -> None:
    done = shared_node.run(f"-n{ntasks}", "-l", "sh", "-c", "echo o$SLURM_PROCID; echo e$SLURM_PROCID >&2", user=NOBODY)
    assert done.returncode == 0
    for text, letter in ((done.stdout, "o"), (done.stderr, "e")):
        assert sorted(text.splitlines()) == sorted(f"{rank:>{width}}: {letter}{rank}" for rank in range(ntasks))


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("printf a", ["0: a"]),
        ("printf 'a\\nb'", ["0: a", "0: b"]),
        ("printf 'part1 '; sleep 0.2; printf 'part2\\n'", ["0: part1 part2"]),
        ("printf '\\n\\n'", ["0: ", "0: "]),
        ("true", []),
        ("printf 'a\\000b\\r\\n'", ["0: a\0b\r"]),
    ],
)
def test_labelled_lines_are_whole_and_end(shared_node: Node, script: str, lines: list[str]) -> None:
    done = subprocess.run(
        shared_node.command("run", "-l", "sh", "-c", script),
        capture_output=True,
        check=False,
        env=shared_node.environment(),
        timeout=PATIENCE,
    )
    assert done.stdout.decode().split("\n") == [*lines, ""]


def test_unbuffered_gives_a_terminal_that_changes_no_byte(shared_node: Node) -> None:
    data = bytes(range(256)) * 4
    (shared_node.scratch / "bytes").write_bytes(data)
    script = f"test -t 1 && ! test -t 2 && cat {shared_node.scratch}/bytes"
    done = subprocess.run(
        shared_node.command("run", "-u", "sh", "-c", script),
        capture_output=True,
        check=False,
        env=shared_node.environment(),
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (0, data)


def test_unbuffered_lines_come_at_once(shared_node: Node) -> None:
    client = shared_node.popen("-u", "python3", "-c", "import time; print('first'); time.sleep(60)", user=NOBODY)
    assert client.stdout is not None
    started = time.monotonic()
    assert client.stdout.readline() == "first\n"
    assert time.monotonic() - started < PATIENCE
    client.terminate()
    client.communicate(timeout=PATIENCE)


PATTERNS = [
    ("-oout", {"out": "o0\no1\n"}, "", ""),
    ("-oout_%t", {"out_0": "o0\n", "out_1": "o1\n"}, "", ""),
    ("-oout_%4t -eerr_%t", {"out_0000": "o0\n", "out_0001": "o1\n", "err_0": "e0\n", "err_1": "e1\n"}, "", ""),
    ("-eerr", {"err": "e0\ne1\n"}, "o0\no1\n", ""),
    ("-onone", {}, "", ""),
    ("-onone -enone", {}, "", ""),
    ("-enone", {}, "o0\no1\n", ""),
    ("-o1", {}, "o1\n", "e1\n"),
    ("-o0 -e1", {}, "o0\n", "e1\n"),
    ("-o2", {"2": "o0\no1\n"}, "", ""),  # no task of that number: a file
    ("-oall", {}, "o0\no1\n", "e0\ne1\n"),
    ("-o-", {}, "o0\no1\n", "e0\ne1\n"),
    ("-o\\%t", {"%t": "o0\no1\n"}, "", ""),
    ("-l -oout", {"out": "0: o0\n1: o1\n"}, "", ""),
    ("-l -oout_%t -eerr", {"out_0": "0: o0\n", "out_1": "1: o1\n", "err": "0: e0\n1: e1\n"}, "", ""),
    ("-u -oout_%t -enone", {"out_0": "o0\n", "out_1": "o1\n"}, "", ""),
]


@pytest.mark.parametrize(("words", "files", "stdout", "stderr"), PATTERNS, ids=[row[0] for row in PATTERNS])
def test_outputs_go_where_the_patterns_say(
    shared_node: Node, place: Path, words: str, files: dict[str, str], stdout: str, stderr: str
) -> None:
    script = "echo o$SLURM_PROCID; echo e$SLURM_PROCID >&2"
    done = shared_node.run("-n2", *words.split(), "sh", "-c", script, user=NOBODY, cwd=str(place))
    assert done.returncode == 0, done.stderr

    def lines(text: str) -> list[str]:
        return sorted(text.splitlines())

    found = {path.name: path.read_text(encoding="utf-8") for path in place.iterdir()}
    assert set(found) == set(files)
    for name, text in files.items():
        errors = text.replace("o", "e") if "-e" not in words else ""  # they follow the output into its file
        assert lines(found[name]) == lines(text + errors), name
    assert lines(done.stdout) == lines(stdout)
    assert lines(done.stderr) == lines(stderr)


def test_a_shared_file_is_emptied_once_however_late_a_task_begins(shared_node: Node, place: Path) -> None:
    (place / "out").write_text("old content\n", encoding="utf-8")
    (place / "out").chmod(0o666)
    for _ in range(5):
        done = shared_node.run("-n8", "-oout", "sh", "-c", "echo $SLURM_PROCID", user=NOBODY, cwd=str(place))
        assert done.returncode == 0
        assert sorted((place / "out").read_text(encoding="utf-8").split()) == list("01234567")


@pytest.mark.parametrize("label", [(), ("-l",)])
def test_files_belong_to_the_user_and_have_the_umask(shared_node: Node, place: Path, label: tuple[str, ...]) -> None:
    previous = os.umask(0o027)
    try:
        assert shared_node.run(*label, "-oout", "-eerr", "echo", user=NOBODY, cwd=str(place)).returncode == 0
    finally:
        os.umask(previous)
    for name in ("out", "err"):
        status = (place / name).stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (NOBODY.pw_uid, NOBODY.pw_gid, 0o640)


@pytest.mark.parametrize("label", [(), ("-l",), ("-u",)])
@pytest.mark.parametrize(
    ("option", "path", "words"),
    [
        ("-o", "/root/x", "open output file '/root/x': Permission denied (as nobody)"),
        ("-e", "/root/x", "open error file '/root/x': Permission denied (as nobody)"),
        ("-o", "/no/such/dir/x_%t", "open output file '/no/such/dir/x_0': No such file or directory (as nobody)"),
        ("-o", "/etc", "open output file '/etc': Is a directory (as nobody)"),
        ("-i", "/no/such/file", "open input file '/no/such/file': No such file or directory (as nobody)"),
        ("-i", "/etc/shadow", "open input file '/etc/shadow': Permission denied (as nobody)"),
    ],
)
def test_a_file_that_cannot_be_opened_fails_the_task_with_a_line(
    shared_node: Node, label: tuple[str, ...], option: str, path: str, words: str
) -> None:
    done = shared_node.run("-n2", *label, option, path, "echo", "ran", user=NOBODY)
    assert done.returncode == 1
    assert f"task 0: {words}" in done.stderr
    assert "ran" not in done.stdout
    shared_node.assert_clean()


def test_one_task_of_several_may_fail_to_open_its_file(shared_node: Node, place: Path) -> None:
    (place / "out_1").mkdir()
    done = shared_node.run("-n3", "-oout_%t", "sh", "-c", "echo $SLURM_PROCID", user=NOBODY, cwd=str(place))
    assert done.returncode == 1
    assert f"task 1: open output file '{place}/out_1': Is a directory (as nobody)" in done.stderr
    assert [(place / f"out_{rank}").read_text(encoding="ascii") for rank in (0, 2)] == ["0\n", "2\n"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["0: line", "1: line", "2: line"]),
        (("-i", "all"), ["0: line", "1: line", "2: line"]),
        (("-i", "1"), ["1: line"]),
        (("-i", "none"), []),
        (("-i", "in"), ["0: file", "1: file", "2: file"]),
        (("-i", "in_%t"), ["0: f0", "1: f1", "2: f2"]),
    ],
)
def test_input_reaches_the_tasks_it_is_meant_for(
    shared_node: Node, place: Path, words: tuple[str, ...], expected: list[str]
) -> None:
    (place / "in").write_text("file\n", encoding="ascii")
    for rank in range(3):
        (place / f"in_{rank}").write_text(f"f{rank}\n", encoding="ascii")
    done = shared_node.run("-n3", "-l", *words, "cat", user=NOBODY, cwd=str(place), stdin="line\n")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected)


def test_large_input_reaches_every_task(shared_node: Node) -> None:
    text = "".join(f"{number}\n" for number in range(300_000))
    done = shared_node.run("-n2", "-l", "md5sum", user=NOBODY, stdin=text)
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    assert sorted(done.stdout.split()) == sorted(["0:", "1:", digest, digest, "-", "-"])


def test_a_task_that_does_not_read_does_not_keep_input_from_the_others(shared_node: Node) -> None:
    text = "x" * 999 + "\n"
    done = shared_node.run("-n2", "sh", "-c", "[ $SLURM_PROCID = 0 ] || wc -c", user=NOBODY, stdin=text * 300)
    assert (done.returncode, done.stdout.split()) == (0, ["300000"])


def test_a_step_does_not_wait_for_input_that_nobody_reads(shared_node: Node) -> None:
    reader, writer = os.pipe()
    client = shared_node.popen("-n2", "true", user=NOBODY, stdin=reader)
    os.close(reader)
    try:
        assert client.wait(PATIENCE) == 0
    finally:
        os.close(writer)


def runs(pid: str) -> bool:
    """False for a zombie too: whoever inherited it collects it when they like."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("words", [(), ("-l",), ("-u",), ("-n2",)])
def test_a_grandchild_that_holds_the_output_is_killed_and_hangs_nobody(
    shared_node: Node, words: tuple[str, ...]
) -> None:
    for how in ("sleep 300 & echo $!", "setsid sleep 300 & echo $!", "(trap '' TERM HUP; sleep 300) & echo $!"):
        started = time.monotonic()
        done = shared_node.run(*words, "sh", "-c", f"{how}; exit 0", user=NOBODY)
        assert done.returncode == 0
        assert time.monotonic() - started < PATIENCE
        pid = done.stdout.split()[-1]
        wait_until(lambda pid=pid: not runs(pid), "the grandchild is gone")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_client_with_closed_streams_runs_its_step(shared_node: Node, place: Path, closed: tuple[int, ...]) -> None:
    redirections = " ".join(f"{fd}>&-" for fd in closed)
    script = f'exec "$@" {redirections}'
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            script,
            "sh",
            *shared_node.command(
                "run", "sh", "-c", f"it=$(readlink /proc/$$/fd/{closed[0]}); echo $it > {place}/it; exit 3"
            ),
        ],
        env=shared_node.environment(),
        check=False,
        timeout=PATIENCE,
        capture_output=True,
    )
    assert done.returncode == 3
    assert (place / "it").read_text(encoding="ascii") == "/dev/null\n"


def test_a_terminal_is_handed_to_the_task_as_it_is(shared_node: Node) -> None:
    ours, theirs = pty.openpty()
    client = shared_node.popen(
        "sh", "-c", "tty <&1; test -t 0 && test -t 2", stdin=theirs, stdout=theirs, stderr=theirs
    )
    assert client.wait(PATIENCE) == 0
    assert os.read(ours, 100).decode().strip() == os.ttyname(theirs)
    os.close(ours)
    os.close(theirs)


def test_a_launch_without_descriptors_reads_and_writes_files(shared_node: Node, place: Path) -> None:
    (place / "in").write_text("from a file\n", encoding="ascii")
    request = {
        "argv": ["sh", "-c", "cat; echo x >&2; readlink /proc/self/fd/2"],
        "environment": {"PATH": "/usr/bin:/bin"},
        "cwd": str(place),
        "ntasks": 1,
        "stdin": "in",
        "stdout": "out",
        "stderr": "all",
    }
    answer = shared_node.call("Launch", request=request)
    record = shared_node.call("Wait", **answer)["record"]
    assert record["exit_status"] == 0  # type: ignore[index]
    assert (place / "out").read_text(encoding="ascii") == "from a file\n/dev/null\n"


@pytest.mark.parametrize("option", ["-l", "-n2"])
def test_a_step_whose_streams_were_not_copied_to_the_end_has_not_ended_well(node: Node, option: str) -> None:
    """Without who copies them a program reads the end of its stdin, or what it says comes nowhere."""
    client = node.popen(option, "sh", "-c", "echo on; exec cat", user=NOBODY, stdin=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline().endswith("on\n")
    os.kill(relay_of(node), signal.SIGKILL)
    _, err = client.communicate("said\n", timeout=PATIENCE)
    assert client.returncode != 0
    assert "a process that copies its streams was ended by signal 9" in err
    assert node.record(1)["state"] == "FAILED"


@pytest.mark.parametrize(("option", "stream"), [("-o", "standard output"), ("-e", "standard error")])
def test_output_that_finds_no_room_is_told_and_no_success(shared_node: Node, option: str, stream: str) -> None:
    words = ("-l", option, "/dev/full", "sh", "-c", "echo lost; echo lost >&2; echo last || :")
    done = shared_node.run(*words, user=NOBODY)
    assert done.returncode != 0
    assert f"its {stream} could not be written: No space left on device" in done.stderr


def test_reader_who_has_read_enough_is_no_failure(shared_node: Node) -> None:
    client = shared_node.popen("-l", "sh", "-c", "echo first; trap '' PIPE; read go; echo second; true",
                               user=NOBODY, stdin=subprocess.PIPE)  # fmt: skip
    assert client.stdout is not None
    assert client.stdin is not None
    assert client.stdout.readline() == "0: first\n"
    client.stdout.close()
    client.stdin.write("go\n")
    client.stdin.close()
    assert client.wait(PATIENCE) == 0


def test_output_that_nobody_reads_does_not_outlive_the_time_limit(shared_node: Node) -> None:
    # Less than a task's pipe takes, so that it ends in any case, and with labels more than the client's.
    client = shared_node.popen("-l", "-t0:02", "seq", "12000", user=NOBODY)
    assert client.wait(PATIENCE) in (0, 143)
    client.communicate()
    record = shared_node.record(shared_node.last_job())
    assert record["state"] == "CANCELLED"
    assert "time limit" in str(record["reason"])
    shared_node.assert_clean()
