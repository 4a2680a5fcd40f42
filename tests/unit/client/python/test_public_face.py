"""What `import nodectl.client` promises: names, options, and that no command pays for them."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import nodectl.client
from nodectl.client import DEVNULL, InvalidRequest, NodectlError, NoService, NotFound, StepExecutor
from nodectl.client.api import errors, options
from nodectl.client.api.streams import STDOUT, Streams
from nodectl.client.command import Failed
from nodectl.client.job_parser import JobParser
from nodectl.client.run_options import OPTIONS, layout_options, waiting_options
from nodectl.client.srun.options import FURTHER

# What belongs to a terminal, to the command, or has another name here.
OF_THE_COMMAND = {"error", "export", "help", "input", "output", "pty", "trace", "verbose"}
OF_SUBMIT = {"help", "parsable", "quiet", "test_only", "verbose", "wait", "wrap", "export", "export_file",
             "get_user_env", "nodefile"}  # fmt: skip


def test_importing_it_imports_nothing() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import nodectl.client;"
        "print(*sorted(name for name in sys.modules if name.startswith('nodectl')))"
    )
    assert nodectl.__file__ is not None
    root = str(Path(nodectl.__file__).parents[1])
    done = subprocess.run([sys.executable, "-IS", "-c", code, root], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["nodectl", "nodectl.client"]


def test_every_public_name_is_there_and_type_checkers_know_it() -> None:
    for name in nodectl.client.__all__:
        assert getattr(nodectl.client, name) is not None
    spec = importlib.util.find_spec("nodectl.client")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    told = {alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert told - {None} == set(nodectl.client.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = nodectl.client.no_such_name


def test_the_options_of_steps_are_those_of_the_command() -> None:
    known = {option.long.replace("-", "_") for option in (*OPTIONS, *layout_options(), *waiting_options())}
    assert options.STEP - {"plugin_options", "mpi"} == known - OF_THE_COMMAND
    assert "mpi" in {option.long for option in FURTHER}


def test_the_options_of_jobs_are_those_of_submit() -> None:
    parser = JobParser("submit")
    for name in options.JOB:
        assert parser.find(name.replace("_", "-")).long == name.replace("_", "-")
    own = {option.long.replace("-", "_") for option in parser.own}
    assert own - options.JOB <= OF_SUBMIT


def test_options_are_read_as_the_command_line_is() -> None:
    wanted = options.step(
        ["true"], {}, {"time": timedelta(hours=1), "mem": "1G", "cpu_bind": "cores", "exact": True, "hold": False,
                       "container_ns": ["pid", "net"], "io_max": ["/dev/a:rbps=1", "/dev/b:wbps=1"], "ntasks": 2,
                       "immediate": 3, "nice": -1, "plugin_options": [("renice", "renice", "5")]},
    )  # fmt: skip
    request = wanted.request
    assert (request["time_limit"], request["mem"], request["ntasks"]) == (3600, 1024, 2)
    assert request["container_ns"] == ["pid", "net"]
    assert request["io_max"] == ["/dev/a:rbps=1", "/dev/b:wbps=1"]
    assert request["layout"] == {"exact": "1"}
    assert request["options"] == [["renice", "renice", "5"]]
    assert (wanted.of_job, wanted.patience) == ({"nice": -1}, 3)


def test_what_is_wrong_with_an_option_is_told_before_anything_is_asked() -> None:
    with pytest.raises(TypeError, match="'mem_ory' is no option here; there are begin, "):
        options.step(["true"], None, {"mem_ory": 1})
    with pytest.raises(TypeError, match="sequence of words"):
        options.step("true", None, {})
    for bad in ({"uid": 0}, {"uid": "root"}, {"ntasks": 2}):
        with pytest.raises(ValueError, match="is no option of an executor"):
            StepExecutor(client=object(), **bad)  # type: ignore[arg-type]


def test_streams_are_subprocess_s(tmp_path: Path) -> None:
    with Streams(DEVNULL, tmp_path / "out-%t", STDOUT, ntasks=2) as streams:
        assert streams.request == {"stdin": "none", "stdout": f"{tmp_path}/out-%t", "stderr": f"{tmp_path}/out-%t"}
    with pytest.raises(ValueError, match="for stderr only"):
        Streams(None, STDOUT, None, ntasks=1)


@pytest.mark.parametrize(
    ("name", "kind", "builtin"),
    [
        ("org.nodectl.NoSuchStep", NotFound, LookupError),
        ("org.nodectl.InvalidRequest", InvalidRequest, ValueError),
        (errors.NO_SERVICE, NoService, ConnectionError),
        ("org.nodectl.InternalError", NodectlError, NodectlError),
    ],
)
def test_errors_are_pythons_kinds_and_say_what_to_do(
    name: str, kind: type[NodectlError], builtin: type[Exception]
) -> None:
    error = errors.public(Failed("why", name=name))
    assert type(error) is kind
    assert isinstance(error, builtin)
    assert (str(error), error.name, bool(error.advice)) == ("why", name, kind is not NodectlError)
