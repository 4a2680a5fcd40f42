"""The command in Python is the one that stands beside the program, whoever calls it and however."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from unit.client.quick.service import QUICK, START, Connection, Service, Step, ended, exited, finish, start

TELLS = '#!/bin/sh\nprintf "%s|" "{name}" "$@"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the program, and with a command in Python that tells its words."""
    place = tmp_path / "a place"
    place.mkdir()
    shutil.copy(QUICK[0], place / "nodectl")
    make(place / "nodectl-python", "beside")
    return place


def make(path: Path, name: str) -> None:
    path.write_text(TELLS.format(name=name))
    path.chmod(0o755)


def said(*words: str | Path, **how: object) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, **how)  # type: ignore[call-overload]
    assert isinstance(done.stdout, str)
    return done.stdout


def test_words_of_other_commands_arrive_as_they_are(place: Path) -> None:
    assert said(place / "nodectl", "ps", "", "two words", "--json") == "beside|ps||two words|--json|"
    assert said(place / "nodectl") == "beside|"


def test_neither_path_nor_name_nor_working_directory_leads_elsewhere(place: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    make(others / "nodectl-python", "other")
    link = others / "nodectl"
    link.symlink_to(place / "nodectl")
    environment = {"PATH": f"{others}:/usr/bin:/bin"}
    assert said("nodectl", "ps", cwd=others, env=environment) == "beside|ps|"
    assert said("./nodectl", "ps", cwd=others, env=environment) == "beside|ps|"
    assert said(str(others / "nodectl"), "ps", executable=place / "nodectl", env=environment) == "beside|ps|"


def test_interpreter_of_the_same_place_is_taken_isolated(place: Path) -> None:
    make(place / "python3", "interpreter")
    assert said(place / "nodectl", "ps") == f"interpreter|-Xnodectl-interrupt-waits|-IS|{place}/nodectl-python|ps|"
    (place / "python3").chmod(0o644)
    assert said(place / "nodectl", "ps") == "beside|ps|"


def test_where_there_is_none_that_is_said(place: Path) -> None:
    (place / "nodectl-python").unlink()
    done = subprocess.run([place / "nodectl", "ps"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == f"nodectl: error: execute {place}/nodectl-python: No such file or directory\n"


def test_step_goes_on_where_the_program_was_replaced_meanwhile(place: Path, service: Service) -> None:
    process = start((str(place / "nodectl"),), ["run", "true"], service)
    connection = service.greet()
    connection.launch()
    (place / "nodectl").unlink()
    (place / "nodectl").write_text("a later version")
    step = connection.begin()
    step.tell(START, exited(3 << 8), ended(3))
    assert finish(process) == (b"beside|run|true|", b"", 3)


def without_python(place: Path, service: Service) -> tuple[subprocess.Popen[bytes], Connection, Step]:
    process = start((str(place / "nodectl"),), ["run", "true"], service)
    connection = service.greet()
    connection.launch()
    (place / "nodectl-python").unlink()
    return process, connection, connection.begin()


@pytest.mark.parametrize("at_once", [True, False])
def test_status_is_the_steps_where_nobody_can_tell_of_it(place: Path, service: Service, *, at_once: bool) -> None:
    process, connection, step = without_python(place, service)
    if at_once:
        step.tell(START, exited(3 << 8), ended(3))
    else:
        step.tell(START, exited(3 << 8))
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"nodectl: error: execute ")
        step.tell(exited(), ended(3))
    output, errors, status = finish(process)
    assert (output, status) == (b"", 3)
    assert at_once == errors.startswith(b"nodectl: error: execute ")
    assert step.call() is None
    assert connection.receive() is None


def test_status_is_the_steps_where_who_tells_of_it_dies(place: Path, service: Service) -> None:
    (place / "nodectl-python").write_text("#!/bin/sh\nkill -SEGV $$\n")
    process = start((str(place / "nodectl"),), ["run", "true"], service)
    connection = service.greet()
    connection.launch()
    connection.begin().tell(START, exited(3 << 8), ended(3))
    assert finish(process)[2] == 3


def test_step_ends_where_nobody_can_take_a_signal(place: Path, service: Service) -> None:
    process, connection, step = without_python(place, service)
    step.tell(START)
    process.send_signal(signal.SIGTERM)
    output, errors, status = finish(process)
    assert (output, status) == (b"", 1)
    assert errors.startswith(b"nodectl: error: execute ")
    assert step.call() is None
    assert connection.receive() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to somebody")
def test_rights_that_are_not_the_caller_s_reach_nobody(place: Path) -> None:
    with tempfile.TemporaryDirectory() as everybodys:
        os.chmod(everybodys, 0o755)
        if os.statvfs(everybodys).f_flag & os.ST_NOSUID:
            pytest.skip("no file here gives rights")
        program = Path(shutil.copytree(place, Path(everybodys) / "place"), "nodectl")
        os.chown(program, 1, 1)
        program.chmod(0o4755)
        service = Service(Path(everybodys) / "socket")
        service.path.chmod(0o666)
        with service.refusing():
            assert finish(start((str(program),), ["run", "true"], service))[0] == b""
        service.close()
        assert not service.greeted
