"""The program that runs the rings: real runs of pytest over small files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rings import main, report, table
from rings.pytests import Children, read
from rings.ring import Case, Finding, Outcome, Result, Ring
from rings.run import AGAIN, Runner
from rootful.node import wait_until

ROOT = Path(__file__).resolve().parents[2]
SOUND = "def test_sound(): pass\n"
BROKEN = "def test_broken(): assert 1 == 2, 'one is not two'\n"
FAILS_FIRST = """\
from pathlib import Path
def test_fails_first():
    seen = Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "the first time"
"""
DIES = "import os\ndef test_dies(): os._exit(70)\n"
BAD_END = (
    "import pytest\n@pytest.fixture\ndef it():\n    yield\n    raise OSError('left')\ndef test_used(it): assert 0\n"
)


def found(directory: Path, *texts: str, workers: int = 0, arguments: tuple[str, ...] = ()) -> Finding:
    """What comes of a ring with a file for each text."""
    files = [directory / f"test_{number}.py" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    ring = Ring("some", "not lint", [file.name for file in files], workers)
    return Runner(directory, arguments, children=Children(directory)).one(ring)


def outcomes(finding: Finding) -> list[tuple[str, str]]:
    return [(case.test.rpartition("::")[2], case.outcome) for case in finding.cases]


def test_a_ring_whose_tests_pass_has_passed(tmp_path: Path) -> None:
    finding = found(tmp_path, SOUND, "import pytest\ndef test_no(): pytest.skip('not here')\n")
    assert finding.result is Result.PASSED
    assert outcomes(finding) == [("test_sound", "passed"), ("test_no", "skipped")]
    assert finding.cases[1].why == "not here"
    assert finding.seconds > 0
    assert finding.cpu > 0


def test_a_test_that_fails_again_by_itself_has_failed(tmp_path: Path) -> None:
    finding = found(tmp_path, SOUND, BROKEN)
    assert finding.result is Result.FAILED
    assert [case.test.rpartition("::")[2] for case in finding.bad] == ["test_broken"]
    assert "one is not two" in finding.bad[0].why
    assert not finding.unsteady


@pytest.mark.parametrize("workers", [0, 2])
def test_a_test_that_passes_when_it_runs_again_is_unsteady(tmp_path: Path, workers: int) -> None:
    finding = found(tmp_path, SOUND, FAILS_FIRST, workers=workers)
    assert finding.result is Result.PASSED
    assert not finding.bad
    (unsteady,) = finding.unsteady
    assert "the first time" in unsteady.why
    assert "UNSTEADY some" in "\n".join(report.told([finding], 1.0))


def test_what_failed_in_many_places_is_no_chance_and_does_not_run_again(tmp_path: Path) -> None:
    finding = found(tmp_path, *[BROKEN] * (AGAIN + 1))
    assert finding.result is Result.FAILED
    assert len(finding.bad) == AGAIN + 1
    assert not (tmp_path / "some.again.output").exists()


def test_a_test_that_fails_and_cannot_clean_up_is_one_case(tmp_path: Path) -> None:
    assert outcomes(found(tmp_path, BAD_END)) == [("test_used", "failed")]


def test_a_file_that_cannot_be_imported_has_failed(tmp_path: Path) -> None:
    finding = found(tmp_path, SOUND, "import no_such_module\n")
    assert finding.result is Result.FAILED
    assert "no_such_module" in finding.why + "".join(case.why for case in finding.bad)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_ring_whose_process_dies_has_failed(tmp_path: Path, workers: int) -> None:
    finding = found(tmp_path, SOUND, DIES, workers=workers)
    assert finding.result is Result.FAILED


def test_a_ring_without_tests_has_failed_unless_arguments_choose_them(tmp_path: Path) -> None:
    assert found(tmp_path, "").result is Result.FAILED
    ring = Ring("some", "not lint")
    here = (str(tmp_path / "test_0.py"), "-p", "no:cacheprovider")
    assert Runner(tmp_path, here).one(ring).result is Result.UNUSED


def test_a_ring_that_this_machine_lacks_a_program_for_is_skipped_and_under_ci_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Ring("some", "not lint", program="no-such-program")
    runner = Runner(tmp_path)
    finding = runner.one(ring)
    assert finding.result is Result.SKIPPED
    assert "no-such-program" in finding.why
    monkeypatch.setenv("CI", "true")
    assert main.told(runner, finding).result is Result.FAILED


def test_few_unsteady_tests_are_told_and_more_fail_the_run() -> None:
    unsteady = tuple(Case(f"test_{number}", Outcome.FAILED, 1.0, "by chance") for number in range(3))
    assert main.passed([Finding("one", Result.PASSED, unsteady=unsteady[:2])])
    assert not main.passed([Finding("one", Result.PASSED, unsteady=unsteady)])
    assert not main.passed([Finding(name, Result.PASSED, unsteady=unsteady[:2]) for name in ("one", "two")])


@pytest.mark.parametrize(
    ("results", "passed"),
    [
        ([Result.PASSED, Result.UNUSED], True),
        ([Result.PASSED, Result.MACHINE], True),
        ([Result.PASSED, Result.SKIPPED], True),
        ([Result.PASSED, Result.FAILED], False),
        ([Result.UNUSED, Result.UNUSED], False),
    ],
)
def test_a_run_has_passed_if_a_ring_did_and_none_failed(results: list[Result], passed: bool) -> None:
    assert main.passed([Finding(str(number), result) for number, result in enumerate(results)]) is passed


def test_every_file_of_tests_is_in_a_ring() -> None:
    left = []
    for file in (ROOT / "tests").rglob("test_*.py"):
        name, text = file.relative_to(ROOT).as_posix(), file.read_text()
        rings = {ring.name for ring in table.RINGS if any(name.startswith(f"{path}/") for path in ring.paths)}
        if not rings or ("mark" + ".packages" in text and "packages" not in rings):
            left.append(name)
    assert not left


def test_the_last_line_is_in_pytests_form() -> None:
    cases = [Case("a", Outcome.PASSED, 2.0), Case("b", Outcome.FAILED, 1.0, "no"), Case("c", Outcome.ERROR, 1.0, "no")]
    *_, last = report.told([Finding("one", Result.FAILED, cases=cases)], 3.0)
    assert last == "===== 1 failed, 1 passed, 1 errors in 3.00s ====="


def test_a_report_that_was_cut_off_tells_what_it_has(tmp_path: Path) -> None:
    reports = [
        {"$report_type": "TestReport", "nodeid": test, "outcome": "passed", "when": when, "duration": 0.5}
        for test, when in (("a", "setup"), ("a", "call"), ("a", "teardown"), ("b", "setup"))
    ]
    (tmp_path / "reports").write_text("".join(f"{json.dumps(line)}\n" for line in reports) + '{"$report_type": "Te')
    ended, cut_off = read(tmp_path / "reports")
    assert ended == Case("a", Outcome.PASSED, 1.5)
    assert (cut_off.test, cut_off.outcome) == ("b", Outcome.ERROR)


def test_an_interrupted_run_ends_what_it_started(tmp_path: Path) -> None:
    waits = tmp_path / "test_waits.py"
    waits.write_text(
        "import os, time\nfrom pathlib import Path\n"
        "def test_waits():\n"
        f"    Path({str(tmp_path / 'pid')!r} + '.part').write_text(str(os.getpid()))\n"
        f"    os.rename({str(tmp_path / 'pid')!r} + '.part', {str(tmp_path / 'pid')!r})\n"
        "    time.sleep(3600)\n"
    )
    command = [sys.executable, "-P", str(ROOT / "tests/rings/main.py"), "--rings", "unit", str(waits)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        wait_until((tmp_path / "pid").exists, "the test runs")
        pid = int((tmp_path / "pid").read_text())
        running.send_signal(signal.SIGTERM)
        assert running.wait() == 128 + signal.SIGTERM
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_hears_no_interrupt_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rings.pytests.GRACE", 0.2)
    children, output = Children(), tmp_path / "output"
    deaf = "import signal, time; signal.signal(2, signal.SIG_IGN); print('deaf', flush=True); time.sleep(3600)"
    with ThreadPoolExecutor() as threads:
        running = threads.submit(children.run, [sys.executable, "-c", deaf], output, {})
        wait_until(lambda: output.exists() and "deaf" in output.read_text(), "the program is deaf")
        children.end()
        assert running.result().status == -signal.SIGKILL
