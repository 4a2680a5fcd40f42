"""What is wrong is refused in one clear line with the right exit status, and the next request is served."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest

from rootful.node import NOBODY, Node
from rootful.programs import LONGEST_WORD, being_written
from rootful.raw import events


@pytest.fixture
def programs(shared_node: Node) -> Path:
    directory = shared_node.scratch / "programs"
    if not directory.exists():
        directory.mkdir()
        for name, text, mode in (
            ("notexec", "#!/bin/sh\n", 0o644),
            ("noshebang", "echo hello\n", 0o755),
            ("badinterp", "#!/no/such/interpreter\n", 0o755),
            ("binary", "\x7fELF rubbish", 0o755),
        ):
            (directory / name).write_text(text, encoding="utf-8")
            (directory / name).chmod(mode)
    return directory


@pytest.mark.parametrize(
    ("program", "status", "words"),
    [
        ("/no/such/program", 2, "execute '/no/such/program': No such file or directory (as nobody)"),
        ("nosuchprogram", 2, "execute 'nosuchprogram': No such file or directory: in no directory of PATH (as nobody)"),
        ("{}/notexec", 13, "Permission denied: it is not executable, or a directory of its path is closed (as nobody)"),
        ("{}/noshebang", 8, "Exec format error: a script begins with #! and its interpreter (as nobody)"),
        ("{}/binary", 8, "Exec format error: a script begins with #! and its interpreter (as nobody)"),
        ("{}/badinterp", 2, "its interpreter is missing (as nobody)"),
        ("{}", 13, "it is a directory (as nobody)"),
        ("/etc/passwd/x", 20, "Not a directory (as nobody)"),
        ("echo hi", 2, "in no directory of PATH; sh -c runs a line of shell (as nobody)"),
        ("\n\x1b[31m", 2, "execute '\\n\\x1b[31m': No such file or directory: in no directory of PATH (as nobody)"),
        ("\udcff", 2, "No such file or directory: in no directory of PATH (as nobody)"),
    ],
)
def test_a_program_that_cannot_run(served: Node, programs: Path, program: str, status: int, words: str) -> None:
    done = served.run("-n2", "--", program.format(programs), "argument", user=NOBODY)
    assert done.returncode == status, done.stderr
    lines = done.stderr.splitlines()
    assert len([line for line in lines if words in line]) == 2, done.stderr
    # One line for both tasks, or two where they did not end together.
    assert len([line for line in lines if f"Exited with exit code {status}" in line]) == len(lines) - 2 in (1, 2)


def test_a_script_of_path_that_cannot_run_is_not_called_missing(served: Node, programs: Path) -> None:
    path = {"PATH": f"/no/such:{programs}:/usr/bin:/bin"}
    done = served.run("badinterp", user=NOBODY, env=path)
    assert done.returncode == 2
    assert "execute 'badinterp': No such file or directory: its interpreter is missing (as nobody)" in done.stderr
    assert "in no directory of PATH" in served.run("nosuchprogram", user=NOBODY, env=path).stderr
    closed = "execute 'notexec': Permission denied: it is not executable, or a directory of its path is closed"
    assert closed in served.run("notexec", user=NOBODY, env=path).stderr


def test_a_word_that_is_longer_than_the_kernel_takes(served: Node) -> None:
    """It cannot be typed: a client would have to be executed with it."""
    told = list(events(served, argv=["true", "x" * LONGEST_WORD], uid=NOBODY.pw_name))
    texts = [event["text"] for event in told if event["event"] == "message"]
    assert [text.partition("task 0: ")[2] for text in texts] == ["execute 'true': Argument list too long (as nobody)"]
    record = told[-1]["record"]
    assert (record["state"], record["exit_status"]) == ("FAILED", errno.E2BIG)


def test_a_word_that_is_as_long_as_the_kernel_takes(served: Node) -> None:
    (*_, last) = events(served, argv=["true", "x" * (LONGEST_WORD - 1)], uid=NOBODY.pw_name)
    assert last["record"]["state"] == "COMPLETED"


def test_a_program_that_is_being_written(served: Node) -> None:
    with being_written(served.scratch / "written") as path:
        done = served.run(str(path), user=NOBODY)
        assert done.returncode == errno.ETXTBSY
        assert f"execute '{path}': Text file busy (as nobody)\n" in done.stderr
    assert served.run(str(path), user=NOBODY).returncode == 0, "it can be executed otherwise"


def test_a_missing_directory_is_a_line_and_tmp(served: Node) -> None:
    done = served.run("-D", "/no/such/dir", "pwd", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "/tmp\n")
    assert (
        "enter working directory '/no/such/dir': No such file or directory (as nobody): going to /tmp instead"
        in done.stderr
    )


def test_a_program_of_the_working_directory_needs_no_path(served: Node) -> None:
    for name in ("own", "other"):
        (served.scratch / name).mkdir()
        for program in ("a.out", "true"):
            (served.scratch / name / program).write_text(f"#!/bin/sh\necho {name}: $0 [$1]\n", encoding="utf-8")
            (served.scratch / name / program).chmod(0o755)
    own, other = served.scratch / "own", served.scratch / "other"
    assert served.run("a.out", "x", user=NOBODY, cwd=str(own)).stdout == f"own: {own}/a.out [x]\n"
    assert served.run("-D", str(other), "a.out", user=NOBODY, cwd=str(own)).stdout == f"other: {other}/a.out []\n"
    assert served.run("true", user=NOBODY, cwd=str(own)).stdout == ""  # PATH goes before
    done = served.run("-D", str(other), "a.out", user=NOBODY, cwd=str(own), env={"PATH": str(own)})
    assert done.stdout == f"own: {own}/a.out []\n"


def test_nobody_puts_a_program_for_others_into_tmp(served: Node) -> None:
    """A task whose directory cannot be entered goes to /tmp."""
    with tempfile.NamedTemporaryFile("w", dir="/tmp", prefix="nodectl-", suffix=".out", delete=False) as planted:
        planted.write("#!/bin/sh\necho theirs\n")
    try:
        Path(planted.name).chmod(0o755)
        done = served.run("-D", "/no/such/dir", Path(planted.name).name, user=NOBODY)
    finally:
        Path(planted.name).unlink()
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such file or directory" in done.stderr


def test_a_forbidden_directory_is_a_line_and_tmp(served: Node) -> None:
    closed = served.scratch / "closed"
    closed.mkdir(mode=0o700, exist_ok=True)
    done = served.run("-D", str(closed), "pwd", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "/tmp\n")
    assert "Permission denied (as nobody)" in done.stderr


@pytest.mark.parametrize(
    ("words", "user", "status", "reason"),
    [
        (("-n0", "true"), NOBODY, 1, 'Invalid numeric value "0" for --ntasks.'),
        (("-n100000", "true"), NOBODY, 1, "--ntasks: 100000 is more than max_tasks_per_node = 512"),
        (("-n9999999999", "true"), NOBODY, 1, "--ntasks: 9999999999 is not from 1 to"),
        (("-c9999", "true"), NOBODY, 1, "--cpus-per-task: 9999 is more than the"),
        ((), NOBODY, 1, "No command given to execute."),
        (("",), NOBODY, 1, "argv: no program given"),
        (("--bad", "true"), NOBODY, 255, "unrecognized option '--bad'"),
        (("--uid=0", "true"), NOBODY, 1, "only root may run steps as another user"),
        (("--uid=daemon", "true"), NOBODY, 1, "only root may run steps as another user"),
        (("--gid=root", "true"), NOBODY, 1, "nobody is not in this group"),
        (("--uid=nosuchuser", "true"), NOBODY, 1, "only root may run steps as another user"),
        (("--uid=nosuchuser", "true"), None, 1, "no user 'nosuchuser'"),
        (("--uid=4294967295", "true"), None, 1, "no user '4294967295'"),
        (("--uid=99999999999999999999", "true"), None, 1, "no user '99999999999999999999'"),
        (("--uid=", "true"), None, 1, "no user ''"),
        (("--gid=nosuchgroup", "true"), None, 1, "no group 'nosuchgroup'"),
        (("--gid=4294967295", "true"), None, 1, "no group '4294967295'"),
        (("--gid=99999999999", "true"), None, 1, "no group '99999999999'"),
        (("--cpu-bind=map_cpu:x", "true"), NOBODY, 1, "map_cpu"),
        (("--cpu-bind=map_cpu:", "true"), NOBODY, 1, "map_cpu"),
        (("--cpu-bind=mask_cpu:zz", "true"), NOBODY, 1, "mask_cpu"),
        (("--cpu-bind=map_cpu:4000", "true"), NOBODY, 1, "outside of job step allocation, allocated CPUs are: 0x"),
        (("--cpu-bind=mask_cpu:0x" + "f" * 400, "true"), NOBODY, 1, "allocated CPUs are: 0x"),
        (("--mem-bind=map_mem:x", "true"), NOBODY, 1, "map_mem"),
        (("--distribution=sideways", "true"), NOBODY, 1, "sideways"),
        (("--hint=more", "true"), NOBODY, 1, "more"),
        (("-N2", "-n2", "true"), NOBODY, 1, "1 nodes asked for 2"),
        (("--gpus=400", "true"), NOBODY, 1, "400 GPUs asked for: this node has"),
        (("--mincpus=99999", "true"), NOBODY, 1, "nodectl: error: Requested node configuration is not available"),
        (("--sockets-per-node=9999", "true"), NOBODY, 1, "Requested node configuration is not available"),
        (("--cores-per-socket=9999", "true"), NOBODY, 1, "Requested node configuration is not available"),
        (("-x", "nosuch", "true"), NOBODY, 1, "nodectl: error: Invalid node name specified: nosuch"),
        (("--gpu-bind=closest", "true"), NOBODY, 1, "no GPUs are asked for"),
        (("--ntasks-per-core=x", "true"), NOBODY, 1, 'Invalid numeric value "x" for --ntasks-per-core.'),
        (("--cpu-bind=sideways", "true"), NOBODY, 1, "sideways"),
        (("--cpu-bind=map_cpu:0x0", "true"), NOBODY, 1, "map_cpu: '0x0' is not a decimal number of CPUs"),
        (("--cpu-bind=map_cpu:0,4000", "true"), NOBODY, 1, "outside of job step allocation, allocated CPUs are: 0x"),
        (("-w", "n" * 4097, "true"), NOBODY, 1, "nodectl: error: --nodelist is longer than 4096 characters"),
        (("-w", "n" * 131_000, "true"), NOBODY, 1, "nodectl: error: --nodelist is longer than 4096 characters"),
        (("-m", "plane=" + "9" * 4050, "true"), NOBODY, 1, "nodectl: error: Invalid --distribution specification"),
        (("--ntasks-per-node=" + "9" * 4050, "true"), NOBODY, 1, "Invalid numeric value"),
        (("-t", "500-0", "true"), NOBODY, 1, "--time: "),
        (("-D", "/" + "d" * 5000, "true"), NOBODY, 1, "--chdir: longer than 4096 characters"),
    ],
)
def test_a_request_that_makes_no_sense(
    served: Node, words: tuple[str, ...], user: object, status: int, reason: str
) -> None:
    done = served.run(*words, user=user)
    assert done.returncode == status, done.stderr
    lines = done.stderr.splitlines()
    assert reason in lines[0]
    assert lines[0].startswith("nodectl: ")
    assert len(lines) == 1 or lines[1].startswith("Try 'nodectl run --help'")


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "x"), ("--cpu-bind=x",), ("--hint=x",), ("-B", "x"), ("--gpus=x",), ("--mem-bind=x",), ("-w", "n[1"),
        ("-c9999",), ("--cpu-max=0",), ("--container-ns=x",), ("-n600",), ("--mem=999T",),
    ],
)  # fmt: skip
def test_what_was_mistyped_is_told_in_the_users_words_and_takes_no_number(served: Node, words: tuple[str, ...]) -> None:
    assert served.run("true", user=NOBODY).returncode == 0
    before = served.last_job()
    done = served.run(*words, "true", user=NOBODY)
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.splitlines()) == 1
    for inside in ("task/affinity", "launch_request", "step ", "layout"):
        assert inside not in done.stderr
    assert served.run("true", user=NOBODY).returncode == 0
    assert served.last_job() == before + 1


def test_what_this_machine_does_not_have_is_told_in_the_users_words(served: Node) -> None:
    for words, reason in ((("--gpus=400",), "400 GPUs asked for"), (("-N2", "-n2"), "Only allocated 1 nodes")):
        done = served.run(*words, "true", user=NOBODY)
        assert done.returncode == 1
        assert done.stderr.startswith(f"nodectl: error: {reason}"), done.stderr


def test_names_with_odd_bytes_arrive_unchanged(served: Node) -> None:
    done = served.run("-J", "n\udcffm", "printf", "%s", "a\udcff\n\ud7ff", user=NOBODY, env={"ODD": "\udcfe"})
    assert (done.returncode, done.stdout) == (0, "a\udcff\n\ud7ff"), done.stderr
