"""Levels of confinement, the programs they are made of, and what is said where a machine cannot have them."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import prctl
import pytest

from nodectl.cli.checks.confinement import landlock
from nodectl.kernel import _kernel, operations
from nodectl.launch.confine import confinement, denied_calls, seccomp_compiler
from nodectl.launch.confine.keys import check
from nodectl.model.config import ConfigError
from nodectl.model.confinement_level import LEVELS, is_below, strictest
from nodectl.service.config_file.reader import build

OLDEST = 2  # Landlock of Linux 5.19, which does not know of truncation


def test_levels_are_in_order() -> None:
    assert [[is_below(one, other) for other in LEVELS] for one in LEVELS] == [
        [False, True, True],
        [False, False, True],
        [False, False, False],
    ]
    assert strictest("default", "none") == strictest("none", "default") == "default"


def test_default_is_the_level_unless_the_floor_is_above() -> None:
    assert (build({}).secure, build({}).secure_floor) == ("default", "none")
    assert build({"secure_floor": "strict"}).secure == "strict"
    assert build({"secure": "none"}).secure == "none"
    assert check(build({})) == ""
    assert (
        check(build({"secure": "none", "secure_floor": "default"})) == "secure = none is below secure_floor = default"
    )
    with pytest.raises(ConfigError, match="one of none, default, strict"):
        build({"secure_floor": "high"})


def in_child(act: Callable[[], object]) -> str:
    """What `act` comes to in a child of its own: "done", the errno of its OSError, or the words of another error."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "done"
        try:
            act()
        except OSError as error:
            said = errno.errorcode[error.errno or 0]
        except Exception as error:
            said = str(error)
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        said = file.read()
    assert os.waitpid(pid, 0)[1] == 0
    return said


@pytest.fixture(scope="module")
def made() -> dict[str, object]:
    return seccomp_compiler.programs(OLDEST)


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (lambda path: os.open(path, os.O_RDONLY), "done"),
        (lambda path: os.open(path, os.O_RDONLY | os.O_TRUNC), "EACCES"),
        (lambda path: os.open(path, os.O_WRONLY | os.O_TRUNC), "done"),
        (lambda path: os.open(path, os.O_RDWR | os.O_TRUNC), "done"),
        (lambda path: os.ftruncate(os.open(path, os.O_RDWR), 0), "done"),
        (lambda path: os.truncate(path, 0), "EACCES"),
    ],
)
def test_where_landlock_does_not_see_that_a_file_is_emptied_the_filter_does(
    made: dict[str, object], tmp_path: Path, way: Callable[[Path], object], said: str
) -> None:
    path = tmp_path / "file"
    path.write_text("as it was", encoding="utf-8")

    def act() -> None:
        seccomp_compiler.attempt(made)
        way(path)

    assert in_child(act) == said
    assert said == "done" or path.read_text(encoding="utf-8") == "as it was"


@pytest.mark.parametrize("name", denied_calls.NUMBERS)
def test_calls_that_libseccomp_has_not_heard_of_are_denied_by_number(made: dict[str, object], name: str) -> None:
    """Debian 12's does not know open_tree_attr: strict let it through."""
    assert name in [
        one for level in (denied_calls.DEFAULT, denied_calls.STRICT) for names in level.values() for one in names
    ]

    def act() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        seccomp_compiler.attempt(made)
        if libc.syscall(denied_calls.NUMBERS[name], -1, 0, 0, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "")

    assert in_child(act) == "EPERM"


def test_only_strict_needs_landlock() -> None:
    assert set(seccomp_compiler.programs(0)) == {"landlock", "default"}
    assert set(seccomp_compiler.programs(confinement.LEAST_LANDLOCK)) == {"landlock", "default", "strict"}


def test_a_machine_without_libseccomp_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    with pytest.raises(seccomp_compiler.CannotCompile, match="install libseccomp2"):
        seccomp_compiler.programs(OLDEST)


def test_who_was_born_confined_is_looked_at_and_not_believed(made: dict[str, object]) -> None:
    def look(*, privileged: bool, called: bool) -> None:
        if not privileged:
            prctl.set_no_new_privs(1)
        if not called:
            seccomp_compiler.attempt(made)
        _kernel.perform([operations.confine(operations.INHERITED, "confine: ")], None)

    assert in_child(functools.partial(look, privileged=True, called=True)) == "EPERM"
    assert in_child(functools.partial(look, privileged=False, called=True)) == "EPERM"
    assert in_child(functools.partial(look, privileged=False, called=False)) == "done"


def test_what_is_no_program_is_refused_by_the_kernel() -> None:
    for rubbish in (b"", b"1234567", b"\xff" * 8, b"\0" * 8):
        assert in_child(functools.partial(_kernel.seccomp, rubbish)) in ("EINVAL", "EACCES")
    assert "takes no filter" in in_child(lambda: seccomp_compiler.attempt({"default": "00"}))


def test_no_capability_reaches_into_the_machine() -> None:
    kept = confinement._KEPT["default"]
    for number in (12, 13, 16, 17, 19, 21, 22, 25, 27, 34, 38, 39, 40):
        # net_admin, net_raw, sys_module, sys_rawio, sys_ptrace, sys_admin, sys_boot, sys_time, mknod, syslog, perfmon,
        # bpf, checkpoint_restore
        assert not kept >> number & 1


def test_doctor_tells_whether_steps_can_be_strict() -> None:
    assert landlock(OLDEST, "strict").level == "ok"
    assert (landlock(1, "default").level, landlock(0, "strict").level) == ("warn", "fail")
    assert "version 1, 2 is needed" in landlock(1, "default").detail
