"""What `nodectl run` asks for is the same with and without an interpreter, and what is unusual takes one."""

from __future__ import annotations

import os
import random
import resource
from pathlib import Path

import pytest

from nodectl.client.srun import variables
from unit.client.mpi_programs import linked_to
from unit.client.quick.service import ENVIRONMENT, HELLO, PYTHON, QUICK, Service, both, finish, start, told

PLAIN = [
    ["true"],
    ["--", "true"],
    ["--", "-n", "2"],
    ["-"],
    ["", "-n2", "", "two words"],
    ["-n1", "true"],
    ["-n2", "true"],
    ["-n", "3", "-c2", "sh", "-n1"],
    ["--ntasks=999999", "/bin/true"],
    ["-n", "1", "-c", "2", "true"],
    ["--ntasks=1", "--cpus-per-task", "3", "true"],
    ["--cpus-per-task=4", "-c2", "true"],
    ["-J", "a name", "true"],
    ["-Jname", "--job-name=", "true"],
    ["--job-name", "--", "--", "true"],
    ["true", 'quotes " and \\ and \b\t\n\r\x01\x1f\x7f', "--", "-v"],
    ["true", "\u00e4\u20ac\U0001f600\ud7ff\ue000\U0010ffff"],
]
OTHERS = [
    ["-v", "true"],
    ["-n", "01", "true"],
    ["-n2", "no-such-program"],
    ["-l", "true"],
    ["true", ":", "true"],
    ["--mem=1M", "true"],
    ["-D/", "true"],
    ["true", b"\xff".decode(errors="surrogateescape")],
    ["true", b"\xed\xa0\x80".decode(errors="surrogateescape")],
    ["true", b"\xc0\xafx\xf4\x90\x80\x80\xe2\x82".decode(errors="surrogateescape")],
    ["true", "x" * 70_000],
]
JOB = Path(__file__).with_name("job.env")
READ = {*variables.OPTIONS, *variables.OTHERS, *variables.IGNORED.split(), "SLURM_NEW"} - {"SLURM_JOB_ID"}
PARTICULAR = [
    {"SLURM_NPROCS": "3"},
    {"SRUN_DEBUG": ""},
    {"NODECTL_JOB_ID": "7"},
    {"SPANK_X": "1"},
]


@pytest.mark.parametrize("words", PLAIN)
def test_plain_words_are_asked_for_without_an_interpreter(words: list[str], service: Service) -> None:
    assert both(["run", *words], service)


@pytest.mark.parametrize("words", OTHERS)
def test_other_words_are_python_s(words: list[str], service: Service) -> None:
    assert not both(["run", *words], service)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-n0", "true"],
        ["-n", "true"],
        ["-nx", "true"],
        ["-J"],
        [],
        ["-n1"],
        ["-n1c1", "true"],
        ["--nonsense", "true"],
        ["--"],
    ],
)
def test_words_that_launch_nothing_are_answered_alike(words: list[str], service: Service) -> None:
    with service.refusing() as calls:
        ours, theirs = (finish(start(way, ["run", *words], service)) for way in (QUICK, PYTHON))
    assert ours == theirs
    assert not calls


def in_job(service: Service, **changed: str | None) -> dict[str, str]:
    """What a batch script of a job of this service finds, but for these."""
    fixed = {name: value for line in JOB.read_text().splitlines() for name, _, value in [line.partition("=")]}
    found = {**fixed, "NODECTL_SOCKET": str(service.path), **changed}
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize("words", [["true"], ["-n1", "true"], ["-n2", "-c3", "true"], ["-c2", "true"], ["-Jx", "true"]])
def test_step_of_the_job_in_which_it_was_typed(words: list[str], service: Service) -> None:
    assert both(["run", *words], service, env=in_job(service))


@pytest.mark.parametrize("step", [None, "17"])
@pytest.mark.parametrize("words", [["--overlap"], ["--exact", "-n1", "-c1"], ["--exact", "--exact"]])
def test_step_that_shares_or_divides_the_cpus_of_its_job(words: list[str], step: str | None, service: Service) -> None:
    assert both(["run", *words, "true"], service, env=in_job(service, SLURM_STEP_ID=step))


def test_both_ways_at_once_and_those_of_a_new_job_are_python_s(service: Service) -> None:
    assert not both(["run", "--overlap", "--exact", "true"], service, env=in_job(service))
    assert not both(["run", "--exact", "true"], service)


@pytest.mark.parametrize(
    ("changed", "quick"),
    [
        ({"SLURM_STEP_ID": "0"}, True),
        ({"SLURM_STEP_ID": "17"}, True),
        ({"SLURM_STEP_ID": None}, True),
        ({"SLURM_STEP_ID": "4294967291"}, False),
        ({"SLURM_STEP_ID": "007"}, False),
        ({"SLURM_STEP_ID": ""}, False),
        ({"SLURM_NTASKS": None}, True),
        ({"SLURM_NTASKS": None, "SLURM_NPROCS": None}, True),
        ({"SLURM_NTASKS": "x"}, False),
        ({"SLURM_NTASKS": "0"}, False),
        ({"SLURM_JOB_ID": "8"}, False),
        ({"SLURM_JOB_ID": None}, False),
        ({"NODECTL_JOB_ID": None}, False),
        ({"NODECTL_JOB_ID": "x", "SLURM_JOB_ID": "x"}, False),
        ({"NODECTL_JOB_ID": "07", "SLURM_JOB_ID": "07"}, False),
        ({"NODECTL_CONFIG": ""}, False),
    ],
)
def test_job_that_is_none_or_says_more_is_python_s(
    changed: dict[str, str | None], quick: bool, service: Service
) -> None:
    assert both(["run", "true"], service, env=in_job(service, **changed)) == quick


def test_cpus_of_each_task_decide_how_many_fit_into_a_job(service: Service) -> None:
    environment = in_job(service, SLURM_NTASKS=None, SLURM_NPROCS=None)
    assert not both(["run", "-c2", "true"], service, env=environment)


def test_job_of_another_service_is_none(service: Service, tmp_path: Path) -> None:
    environment = in_job(service, NODECTL_SOCKET=str(tmp_path / "other"))
    for way in (QUICK, PYTHON):
        with service.refusing() as calls:
            finish(start(way, ["--socket", str(service.path), "run", "true"], service, env=environment))
        assert "jobid" not in calls[0]["parameters"]["request"]  # type: ignore[index]


@pytest.mark.parametrize("name", [name for name in sorted(READ) if name.startswith(("SLURM_", "SRUN_"))])
def test_every_variable_that_srun_reads_has_its_meaning_in_a_job(name: str, service: Service, tmp_path: Path) -> None:
    environments = [{**in_job(service), name: "1"}, {**ENVIRONMENT, name: "1", "NODECTL_SOCKET": str(service.path)}]
    with service.refusing() as calls:
        for environment in environments:
            how = {"env": environment, "cwd": tmp_path}  # where one of them has the program copied
            ours, theirs = (finish(start(way, ["run", "true"], service, **how)) for way in (QUICK, PYTHON))
            assert ours == theirs
            assert calls[: len(calls) // 2] == calls[len(calls) // 2 :]
            calls.clear()
    in_every_job = f"\n{name}=" in JOB.read_text() or name == "SLURM_UMASK"  # which a step has
    assert sum(service.quick) == in_every_job


@pytest.mark.parametrize("meaning", PARTICULAR)
def test_variables_that_mean_something_are_python_s(meaning: dict[str, str], service: Service) -> None:
    assert not both(["run", "true"], service, env=ENVIRONMENT | meaning)


def test_socket_may_be_named_before_the_command(service: Service) -> None:
    for words in (["--socket", str(service.path)], [f"--socket={service.path}"]):
        assert both([*words, "run", "true"], service, env=ENVIRONMENT)


def test_environment_goes_along_as_it_is(service: Service) -> None:
    odd = {"BASH_FUNC_x%%": "() {  :\n}", "a.b": "1", " ": " ", "E": "", "X": "=", "U": "\u00fc", "_": "/bin/x"}
    assert both(["run", "true"], service, env={**odd, **ENVIRONMENT})


def test_bytes_that_are_no_text_are_python_s(service: Service) -> None:
    assert not both(["run", "true"], service, env={**ENVIRONMENT, "B": b"\xff".decode(errors="surrogateescape")})


@pytest.mark.parametrize("locale", [{}, {"LANG": "C"}, {"LC_ALL": "C"}, {"LANG": "nowhere"}, {"LC_CTYPE": "nowhere"}])
def test_locale_of_the_user_is_not_changed(locale: dict[str, str], service: Service) -> None:
    environment = {"PATH": "/usr/bin:/bin", **locale}
    assert both(["run", "true"], service, env=environment)
    both(["run", "true", "\u00fc"], service, env=environment)
    call, _, _ = told(PYTHON, ["run", "true"], service, env=environment)
    theirs = call["parameters"]["request"]["environment"]
    assert {name: theirs[name] for name in theirs if name.startswith("L")} == locale


def test_name_of_the_working_directory_is_the_user_s(service: Service, tmp_path: Path) -> None:
    place, link = tmp_path / "place", tmp_path / "link"
    place.mkdir()
    link.symlink_to(place)
    for named in (link, place, tmp_path, "/", ".", "", "/nowhere"):
        assert both(["run", "true"], service, cwd=place, env=ENVIRONMENT | {"PWD": str(named)})


def test_directory_that_was_removed_is_python_s(service: Service, tmp_path: Path) -> None:
    gone = tmp_path / "gone"

    def enter() -> None:
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()

    assert not both(["run", "true"], service, preexec_fn=enter)  # one thread


def test_limits_and_umask_go_along(service: Service) -> None:
    def limit() -> None:
        os.umask(0o137)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_STACK, (3 << 20, 1 << 26))
        resource.setrlimit(resource.RLIMIT_CPU, (1000, resource.RLIM_INFINITY))

    assert both(["run", "true"], service, preexec_fn=limit)


@pytest.mark.parametrize("limit", [(resource.RLIMIT_FSIZE, 4096), (resource.RLIMIT_NOFILE, 16)])
def test_where_nothing_could_be_handed_over_python_begins(limit: tuple[int, int], service: Service) -> None:
    def narrow() -> None:
        resource.setrlimit(limit[0], (limit[1], resource.getrlimit(limit[0])[1]))

    assert not both(["run", "true"], service, preexec_fn=narrow)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams_are_something(closed: tuple[int, ...], service: Service) -> None:
    def close() -> None:
        for fd in closed:
            os.close(fd)

    assert both(["run", "true"], service, preexec_fn=close, shows=False)


@pytest.mark.parametrize(
    "hello",
    [
        {**HELLO, "stack": [{"path": "/x"}]},
        {**HELLO, "warnings": ["beware"]},
        {**HELLO, "cluster": {"nodes": ["a", "b"]}},
        {"node": '"stack":[],"warnings":[]', "stack": [[]], "warnings": []},
        {},
    ],
)
def test_service_that_wants_more_of_its_clients_gets_python(hello: dict[str, object], service: Service) -> None:
    _, quick, _ = told(QUICK, ["run", "true"], service, hello=hello)
    assert not quick


@pytest.mark.parametrize("stdin", ["/dev/null", "/dev/zero", "/etc/passwd"])
def test_several_tasks_read_nothing_where_there_is_nothing(stdin: str, service: Service) -> None:
    fd = os.open(stdin, os.O_RDONLY)
    assert both(["run", "-n2", "true"], service, stdin=fd)
    os.close(fd)


@pytest.mark.parametrize("library", ["libmpich.so.12", "libmpi.so.40", "libmpi_mpifh.so.40", "libimpi.so", "libm.so.9"])
def test_several_tasks_of_an_mpi_program_are_python_s(library: str, service: Service, tmp_path: Path) -> None:
    program = linked_to(library, tmp_path)
    environment = ENVIRONMENT | {"PATH": f"/nowhere::{tmp_path}:/bin"}
    quick = not library.startswith("libmpi")
    assert both(["run", "-n2", f"./{program.name}"], service, cwd=tmp_path) == quick
    assert both(["run", "-n2", program.name], service, env=environment) == quick
    assert both(["run", "-n2", program.name], service, env=ENVIRONMENT | {"PATH": ":"}, cwd=tmp_path) == quick
    assert both(["run", program.name], service, env=environment)


def test_program_that_is_cut_or_changed_anywhere_does_no_harm(service: Service, tmp_path: Path) -> None:
    whole = linked_to("libmpich.so.12", tmp_path).read_bytes()
    chosen = random.Random(3)  # noqa: S311  # the same in each run
    program = tmp_path / "changed"
    for _ in range(25):
        data = bytearray(whole[: chosen.randrange(1, len(whole)) if chosen.randrange(2) else len(whole)])
        for _ in range(chosen.randrange(4)):
            data[chosen.randrange(min(len(data), 1024))] = chosen.randrange(256)
        program.write_bytes(data)
        program.chmod(0o755)
        both(["run", "-n2", str(program)], service)


def test_variable_that_is_there_twice_is_python_s(service: Service) -> None:
    helper = (
        "import ctypes, sys;"
        "words = [word.encode() for word in sys.argv[2:]] + [None];"
        "variables = [b'A=1', b'A=2', b'PATH=/bin', b'NODECTL_SOCKET=' + sys.argv[1].encode(), None];"
        "made = lambda texts: (ctypes.c_char_p * len(texts))(*texts);"
        "ctypes.CDLL(None).execve(words[0], made(words), made(variables))"
    )
    way = ("/usr/bin/python3", "-c", helper, str(service.path))
    call, quick, _ = told((*way, *QUICK), ["run", "true"], service)
    assert not quick
    assert call["parameters"]["request"]["environment"]["A"] == "1"


def test_whatever_is_typed_is_asked_for_alike(service: Service) -> None:
    chosen = random.Random(7)  # noqa: S311  # the same in each run
    pieces = ["-n", "-n1", "-c", "-c3", "-J", "-Jx", "--job-name=y", "--job-name", "--ntasks", "--ntasks=1", "1", "--"]
    with service.refusing() as calls:
        for _ in range(25):
            words = ["run", *chosen.choices(pieces, k=chosen.randrange(5)), "true"]
            ours, theirs = (finish(start(way, words, service)) for way in (QUICK, PYTHON))
            assert ours == theirs, words
            assert calls[: len(calls) // 2] == calls[len(calls) // 2 :], words
            calls.clear()
