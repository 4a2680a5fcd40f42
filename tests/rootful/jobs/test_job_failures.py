"""What a prolog or an epilog costs that fails, crashes, hangs, or was never to be trusted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from rootful import hook_faults
from rootful.hook_faults import FAULTS, HOOK_SECONDS, LATE
from rootful.node import NOBODY, wait_until
from rootful.raw import exchange, launch
from rootful.stage import Stage, ended, left_clean, staged

PROLOG, EPILOG = "slurm_spank_job_prolog", "slurm_spank_job_epilog"
DEATHS = {
    **hook_faults.DEATHS,
    "exits": ("os._exit(3)", "ended with exit status 3"),
    "swallows its interruption": ("while True:\n try: time.sleep(100)\n except BaseException: pass", LATE),
}
HARMLESS = {
    "writes to every descriptor": "for fd in range(3, 64):\n try: os.write(fd, b'rubbish')\n except OSError: pass",
    "writes objects": "for fd in range(3, 64):\n try: os.write(fd, b'{}\\n{\"call\": 1}\\n')\n except OSError: pass",
    "redirects its streams": "fd = os.open('/dev/null', os.O_RDWR)\nfor place in range(3): os.dup2(fd, place)",
    "blocks every signal": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "changes its place": "os.umask(0o777); os.chroot('/proc'); os.chdir('/')",
    "leaves a child": "if os.fork() == 0: os.setsid(); time.sleep(1000)",
    "forks and both return": "os.fork()",
}
SCRIPT_FAULTS = {
    "exits": ("exit 3", "ended with exit status 3"),
    "dies": ("kill -ABRT $$", "died by SIGABRT"),
    "hangs": ("trap '' TERM; setsid sleep 1000 & sleep 1000", LATE),
}


@pytest.fixture(scope="module")
def module_stage() -> Iterator[Stage]:
    with staged(jobs=True, spank_hook_timeout=HOOK_SECONDS, prolog_epilog_timeout=HOOK_SECONDS) as started:
        yield started


@pytest.fixture
def stage(module_stage: Stage) -> Iterator[Stage]:
    yield from left_clean(module_stage)


def refused(stage: Stage, *words: str) -> str:
    """A job that is refused by its prolog, and whose epilog runs all the same. Returns the one line."""
    stage.order(f"second.{EPILOG}", 'open(SCRATCH + "/undone", "w").close()')
    done = stage.node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    job = stage.last_job()
    record: Mapping[str, object] = stage.node.call("Wait", job=job, step=0, epilog=True)["record"]  # type: ignore[assignment]
    assert (record["state"], record["exit_status"], record["tasks"]) == ("FAILED", 1, [])
    assert str(record["reason"]) in line
    assert all(word in line for word in (f"job {job}", *words)), line
    assert str(record["reason"]) in stage.node.logged()
    assert (stage.node.scratch / "undone").exists()
    return line


def noted(stage: Stage, *words: str) -> None:
    """A job that ran well and whose epilog left a note."""
    done = stage.node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    job = stage.last_job()
    record: Mapping[str, object] = stage.node.call("Wait", job=job, step=0, epilog=True)["record"]  # type: ignore[assignment]
    assert (record["state"], record["exit_status"], record["reason"]) == ("COMPLETED", 0, "")
    assert all(word in str(record["epilog"]) for word in (f"job {job}", *words)), record["epilog"]
    assert str(record["epilog"]) in stage.node.logged()
    assert str(record["epilog"]) in stage.node.nodectl("show", str(job)).stdout


@pytest.mark.parametrize("fault", FAULTS)
def test_required_prolog_hook_that_fails_refuses_the_job(stage: Stage, fault: str) -> None:
    code, words = FAULTS[fault]
    stage.order(f"first.{PROLOG}", code)
    stage.order(f"second.{PROLOG}", 'open(SCRATCH + "/went on", "w").close()')
    refused(stage, "plugin first", PROLOG, words)
    assert not (stage.node.scratch / "went on").exists()


@pytest.mark.parametrize("fault", FAULTS)
def test_required_epilog_hook_that_fails_is_noted(stage: Stage, fault: str) -> None:
    code, words = FAULTS[fault]
    stage.order(f"first.{EPILOG}", code)
    noted(stage, "plugin first", EPILOG, words)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", [PROLOG, EPILOG])
def test_optional_hook_that_fails_costs_nothing(stage: Stage, call: str, fault: str) -> None:
    stage.stack("optional", "required")
    stage.order(f"first.{call}", FAULTS[fault][0])
    stage.order(f"second.{call}", 'open(SCRATCH + "/went on", "w").close()')
    done = stage.node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    record: Mapping[str, object] = stage.node.call("Wait", job=stage.last_job(), step=0, epilog=True)["record"]  # type: ignore[assignment]
    assert "epilog" not in record
    assert (stage.node.scratch / "went on").exists()


@pytest.mark.parametrize("role", ["required", "optional"])
@pytest.mark.parametrize("death", DEATHS)
def test_prolog_process_that_dies_in_a_plugin_refuses_the_job_whoever_it_was(
    stage: Stage, death: str, role: str
) -> None:
    code, words = DEATHS[death]
    stage.stack(role, "required")
    stage.order(f"first.{PROLOG}", code)
    refused(stage, "plugin first", PROLOG, words)


@pytest.mark.parametrize("death", DEATHS)
def test_epilog_process_that_dies_in_a_plugin_is_noted(stage: Stage, death: str) -> None:
    code, words = DEATHS[death]
    stage.order(f"second.{EPILOG}", code)
    noted(stage, "plugin second", EPILOG, words)


@pytest.mark.parametrize("call", [PROLOG, EPILOG])
@pytest.mark.parametrize("kind", HARMLESS)
def test_what_a_hook_does_to_its_process_is_nobody_elses_business(stage: Stage, kind: str, call: str) -> None:
    stage.order(f"first.{call}", HARMLESS[kind])
    done = stage.node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    record: Mapping[str, object] = stage.node.call("Wait", job=stage.last_job(), step=0, epilog=True)["record"]  # type: ignore[assignment]
    assert "epilog" not in record


@pytest.mark.parametrize("fault", SCRIPT_FAULTS)
def test_prolog_script_that_fails_refuses_the_job(stage: Stage, fault: str) -> None:
    code, words = SCRIPT_FAULTS[fault]
    stage.order("prolog", code)
    refused(stage, f"prolog {stage.node.dir}/prolog", words)
    rows = [line for line in stage.node.trace(stage.last_job()) if line["call"] == "prolog"]
    assert [line["rc"] for line in rows] == [-1]


@pytest.mark.parametrize("fault", SCRIPT_FAULTS)
def test_epilog_script_that_fails_is_noted(stage: Stage, fault: str) -> None:
    code, words = SCRIPT_FAULTS[fault]
    stage.order("epilog", code)
    noted(stage, f"epilog {stage.node.dir}/epilog", words)


def test_word_of_a_script_counts_before_that_of_a_hook(stage: Stage) -> None:
    stage.order(f"first.{PROLOG}", "rc = -1")
    stage.order("prolog", "exit 4")
    assert PROLOG not in refused(stage, "ended with exit status 4")
    assert f"job {stage.last_job()}: plugin first: {PROLOG}: returned -1" in stage.node.logged()


@pytest.mark.parametrize("wrong", ["absent", "not executable", "no program", "others may write", "a user's"])
def test_script_that_cannot_be_used_is_named(stage: Stage, wrong: str) -> None:
    path = stage.node.dir / "prolog"
    text, mode = path.read_bytes(), path.stat().st_mode
    words = {
        "absent": "No such file",
        "not executable": "Permission denied",
        "no program": "Exec format error",
        "others may write": "not trusted",
        "a user's": "not trusted",
    }[wrong]
    try:
        if wrong == "absent":
            path.unlink()
        elif wrong == "not executable":
            path.chmod(0o644)
        elif wrong == "no program":
            path.write_text("text\n", encoding="utf-8")
        elif wrong == "others may write":
            path.chmod(0o777)
        else:
            os.chown(path, NOBODY.pw_uid, -1)
        refused(stage, str(path), words)
    finally:
        path.unlink(missing_ok=True)
        path.write_bytes(text)
        path.chmod(mode)


def test_plugin_that_cannot_be_loaded_in_the_prolog_is_named(stage: Stage) -> None:
    path = stage.node.plugins / "spank" / "first.py"
    text = path.read_text(encoding="utf-8")
    dying = "\nif 'job_prolog' in sys.orig_argv[-1]: os.kill(os.getpid(), signal.SIGSEGV)\n"
    try:
        path.write_text(text + dying, encoding="utf-8")
        refused(stage, "plugin first", "loading", "died by SIGSEGV")
    finally:
        path.write_text(text, encoding="utf-8")


HOSTILE: dict[str, dict[str, object]] = {
    "newline": {"A\nPATH": "x"},
    "equals": {"PATH=x": "x"},
    "empty name": {"": "x"},
    "blank": {"A B": "x"},
    "function": {"BASH_FUNC_ls%%": "() { id; }"},
    "no ASCII": {"\u00e4": "x"},
    "NUL": {"A": "x\0PATH=y"},
    "no text": {"A": 1},
    "too long": {"A": "x" * 131_072},
    "too long together": {f"A{number}": "x" * 100_000 for number in range(11)},
    "too many": {f"A{number}": "" for number in range(5000)},
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_variable_that_no_script_of_roots_should_see_is_refused(stage: Stage, kind: str) -> None:
    before = stage.last_job()
    reply, _ = exchange(stage.node, launch(job_control=HOSTILE[kind]))
    assert reply is not None
    assert reply["error"] == "org.nodectl.InvalidRequest"
    assert reply["parameters"]["parameter"] == "job_control"  # type: ignore[index]
    assert stage.last_job() == before


def test_step_of_no_client_has_prolog_and_epilog_too(stage: Stage) -> None:
    stage.order("epilog", "echo $SPANK_A >$SCRATCH/seen")
    request = {"argv": ["true"], "environment": {}, "cwd": "/", "ntasks": 1, "job_control": {"A": "b c"}}
    reply = stage.node.call("Launch", request=request)
    assert ended(stage, int(str(reply["job"])))["state"] == "COMPLETED"
    stage.node.call("Wait", job=reply["job"], step=0, epilog=True)
    assert (stage.node.scratch / "seen").read_text(encoding="utf-8") == "b c\n"


def test_job_on_a_full_disk_has_its_epilog_and_its_end(module_stage: Stage) -> None:
    """What the daemon keeps of a job before its epilog has its room since before the prolog."""
    node = module_stage.node
    node.stop()
    run = node.steps.parent
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", run], check=True)
    try:
        node.start()
        module_stage.order("prolog", f"cat /dev/zero >{run}/filler 2>/dev/null; exit 1")
        module_stage.order("epilog", f"rm {run}/filler")
        assert node.run("true", user=NOBODY).returncode == 1
        record = node.call("Wait", job=module_stage.last_job(), step=0, epilog=True)["record"]
        assert record["state"] == "FAILED"  # type: ignore[index]
        assert not (run / "filler").exists()
        assert "No space left on device" not in node.logged()
        assert "Traceback" not in node.logged()
    finally:
        node.stop()
        # The forkserver has its files open for a moment longer.
        wait_until(lambda: subprocess.run(["umount", run], check=False).returncode == 0, f"{run} is unmounted")
        module_stage.reset()
