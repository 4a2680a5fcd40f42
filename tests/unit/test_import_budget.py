"""What the two processes that must start or fork quickly import: nothing that costs milliseconds and is not needed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

import nodectl

COSTLY = {
    "re",
    "json",
    "argparse",
    "logging",
    "threading",
    "asyncio",
    "ctypes",
    "typing",
    "dataclasses",
    "socket",
    "subprocess",
    "pathlib",
}
PACKAGE = Path(str(nodectl.__file__)).parent
BOOT = f"import sys; sys.path[:0] = [{sysconfig.get_paths()['purelib']!r}]; "
LAUNCH = {
    "bulk", "bulk.runner", "launch.cgroup", "launch.confine", "launch.container", "launch.stepd",
    "launch.streams", "launch.task", "kernel", "messages", "model",
    "model.wire", "plugin_api", "plugin_host", "plugin_host.tracing", "spank",
}  # fmt: skip
CONFIGURATION = {
    "kernel", "launch.cgroup", "launch.confine", "launch.container", "launch.task", "messages", "model", "model.config",
    "placement.binding", "plugin_api", "plugin_host", "scheduler", "selection", "service.config_file",
    "spank",
}  # fmt: skip
COMMAND = {"cli", "client", "messages", "model", "model.wire"}
# What an idle service holds beside nodectl's own modules. A step runner is a fork of the forkserver.
_SYSTEM = {"errno", "fcntl", "gc", "genericpath", "os", "posixpath", "resource", "select", "stat"}
_FORKED = _SYSTEM | {"prctl", "termios"}
_COLLECTIONS = {"cgroupspy", "collections", "itertools", "keyword", "operator", "reprlib", "types"}
HELD = {
    "nodectl.service.listener.main": _FORKED | {"struct"},
    "nodectl.launch.forkserver.main": _FORKED | _COLLECTIONS,
    "nodectl.service.daemon.main": _SYSTEM | _COLLECTIONS | {
        "array", "asyncio", "bisect", "bitarray", "concurrent", "contextlib", "contextvars", "copy", "copyreg",
        "datetime", "enum", "fnmatch", "functools", "glob", "grp", "heapq", "json", "math", "pwd", "re", "selectors",
        "signal", "socket", "sqlite3", "string", "struct", "threading", "tomllib", "warnings", "weakref", "zlib",
    },
}  # fmt: skip
_ROOMS = {"launch", "placement", "service", "slurm"}  # with nothing but folders
ENUM = frozenset({"enum"})
OS = ENUM | {"os"}  # a tenth of what a step costs its command


class Entry(NamedTuple):
    """What a process imports before it does anything: the code, the parts of nodectl, how many of its modules."""

    code: str
    parts: set[str]
    modules: int
    also_costly: frozenset[str] = frozenset()


ENTRIES = {
    # A step on a machine whose service is missing: everything the client imports before it connects.
    "client": Entry(
        "from nodectl.cli.main import main; main(['--socket', '/nonexistent', 'run', 'true'])", COMMAND, 15, OS
    ),
    "client's options": Entry(
        "from nodectl.client.run_options import RunParser; parsed = RunParser().parse(['-n2', 'true']);"
        "import nodectl.cli.run;"
        "from nodectl.client.launch_request import make_request, job_environment as variables;"
        "make_request(parsed); variables(parsed)",
        COMMAND,
        17,
        OS,
    ),
    # The same by Slurm's name.
    "srun": Entry(
        "import sys; from nodectl.slurm.commands.entry import main;"
        "from nodectl.client.command import GlobalOptions; settings = GlobalOptions();"
        "settings.socket = '/nonexistent'; main('srun', settings, ['true'])",
        COMMAND | {"slurm.commands"},
        18,
        OS,
    ),
    "submission": Entry(
        "from nodectl.cli.main import main;"
        "main(['--socket', '/nonexistent', 'submit', '--begin=now+1day', '--wrap=true'])",
        COMMAND | {"client.srun", "placement.binding", "spank"},
        40,
        ENUM,
    ),
    # A command that has to read the configuration: of the subjects no more than their keys.
    "configuration": Entry(
        "from nodectl.service.config_file import reader; reader.load('/nonexistent', must_exist=False)",
        CONFIGURATION,
        40,
        ENUM,
    ),
    # One for each prolog and epilog.
    "job process": Entry(
        "import nodectl.service.daemon.jobs.script_process, nodectl.spank.job_script", {*LAUNCH, "service.daemon"}, 60
    ),
    # Until its companions are executed; what comes then they do not wait for.
    "daemon's beginning": Entry(
        "import nodectl.cli.daemon",
        {"cli", "service.daemon", "kernel", "messages", "model", "plugin_api", "plugin_host", "spank"},
        25,
        ENUM,
    ),
    "forkserver": Entry("import nodectl.launch.forkserver.main", {*LAUNCH, "launch.forkserver"}, 120),
    "task": Entry(
        "import nodectl.launch.task.main, nodectl.launch.stepd.main, nodectl.launch.confine.scripts",
        LAUNCH,
        108,
    ),
}


def imported(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{BOOT}{code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("name", ENTRIES)
def test_nothing_costly_is_imported(name: str) -> None:
    entry = ENTRIES[name]
    modules = imported(entry.code)
    assert any(module.startswith("nodectl.") for module in modules)
    assert modules & (COSTLY | entry.also_costly) == set()


def _part(module: str) -> str:
    """Return the folder of a module, without `nodectl`: of two names where a folder holds it in a room."""
    _, room, *rest = module.split(".")
    return f"{room}.{rest[0]}" if rest and (PACKAGE / room / rest[0]).is_dir() else room


@pytest.mark.parametrize("name", ENTRIES)
def test_no_more_of_nodectl_is_imported_than_is_needed(name: str) -> None:
    entry = ENTRIES[name]
    modules = {module for module in imported(entry.code) if module.partition(".")[0] == "nodectl"}
    assert {_part(module) for module in modules - {"nodectl"}} - _ROOMS <= entry.parts
    assert len(modules) <= entry.modules, sorted(modules)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions of Python import other modules")
@pytest.mark.parametrize("process", HELD)
def test_idle_service_holds_no_other_modules_of_python(process: str) -> None:
    packages = {name.partition(".")[0] for name in imported(f"import {process}") - imported("pass")}
    assert {name for name in packages if not name.startswith("_")} - {"nodectl"} == HELD[process]


def test_daemon_has_asyncio_without_tls_and_its_plugins_may_have_tls() -> None:
    assert imported("import nodectl.service.daemon.main") & {"ssl", "_ssl"} == set()
    assert "asyncio" in imported("import nodectl.service.daemon.main, ssl")


def test_daemon_has_asyncio_without_what_that_uses_where_something_is_wrong() -> None:
    """Megabytes of every idle service. It is all there for a plugin that wants it."""
    unwanted = {
        "inspect", "ast", "dis", "dataclasses", "argparse", "pyseccomp", "ctypes", "subprocess", "locale", "logging",
        "traceback", "linecache", "tokenize", "textwrap", "asyncio.sslproto", "cgroupspy.nodes",
    }  # fmt: skip
    assert imported("import nodectl.service.daemon.main") & unwanted == set()
    assert "dis" in imported("import nodectl.service.daemon.main, inspect; assert inspect.isfunction(inspect.unwrap)")
    handled = """
import nodectl.service.daemon.main, asyncio, signal
async def serve():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, asyncio.Event().set)
    try:
        loop.add_signal_handler(signal.SIGINT, serve)
    except TypeError:
        return
    raise AssertionError("a coroutine is no handler")
async def wait():
    waiting = asyncio.create_task(asyncio.sleep(0))
    waiting.add_done_callback(lambda _: None)
    assert "lambda" in repr(waiting), waiting
    await waiting
asyncio.run(serve())
asyncio.run(wait())"""
    assert imported(handled) & unwanted == set()
    wanted = "import nodectl.service.daemon.main, asyncio.coroutines as it; assert not it.inspect.isgenerator(it)"
    assert "dis" in imported(f"{wanted}; import inspect; assert inspect.getsource")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the bodies of classes hold no annotations")
def test_daemon_has_no_typing_and_its_plugins_have_it() -> None:
    """It would compile the annotations of named tuples, for which the interpreter makes the classes of `ast`."""
    daemon = "import nodectl.service.daemon.main, gc"
    classes = "assert not [one for one in gc.get_objects() if isinstance(one, type) and one.__module__ == 'ast']"
    assert "typing" not in imported(f"{daemon}\n{classes}")
    plugin = """
from typing import Generic, NamedTuple, TypeVar
class Pair(Generic[TypeVar("T")]):
    pass
class Row(NamedTuple):
    name: str
assert Pair[int] and Row.__annotations__ == {"name": str}"""
    assert "typing" in imported(daemon + plugin)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the bodies of classes hold no annotations")
def test_daemons_modules_have_named_tuples_and_words_for_annotations() -> None:
    code = """
from nodectl.service.daemon import lean_typing
from typing import Any, Literal, NamedTuple, NewType, Protocol, TypeVar, cast
T, Uid, Either = TypeVar("T", bound=int), NewType("Uid", int), Any | None | Literal["word"]
class Row(NamedTuple):
    first: "int"
    second: "list[str] | None" = None
    third: "T" = 3
    def both(self):
        return self.first, self.second
    @property
    def last(self):
        return self.third
    word = "row"
class Shape(Protocol[T]):
    def area(self): ...
assert Row(1) == (1, None, 3) and Row(1, third=4).last == 4 and Row(2, []).both() == (2, []) and Row.word == "row"
assert (Row.__module__, Row.__name__, Row._field_defaults) == ("__main__", "Row", {"second": None, "third": 3})
assert Uid(5) == 5 and cast("Row", 6) == 6 and Shape.__mro__ == (Shape, object)
modules = lean_typing.sys.modules
assert type(modules["typing"]) is lean_typing._Typing
from typing import get_type_hints  # only the real module has it
assert get_type_hints.__module__ == "typing" and type(modules["typing"]) is not lean_typing._Typing"""
    imported(code)


def test_daemons_asyncio_says_what_is_wrong_and_has_loggers() -> None:
    code = f"""{BOOT}
import nodectl.service.daemon.main, asyncio, logging, concurrent.futures
async def fail():
    loop = asyncio.get_running_loop()
    loop.call_soon(int, "no number")
    loop.set_debug(True)
    waiting = loop.create_task(asyncio.sleep(0))
    loop.call_exception_handler({{"message": "of a task", "task": waiting}})
    await waiting
    waiting.print_stack()
    future = concurrent.futures.Future()
    future.add_done_callback(lambda _: int("no callback"))
    future.set_result(0)
asyncio.run(fail())
logging.basicConfig(format="%(name)s says %(message)s", level=logging.DEBUG)
asyncio.run(asyncio.sleep(0))
import asyncio.sslproto
assert asyncio.sslproto.SSLProtocol"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in ("no number", "of a task", "created at <string>", "no callback", "asyncio says Using selector"):
        assert words in done.stderr, words


def test_spank_plugin_has_collections_as_they_are() -> None:
    code = (
        "import nodectl.launch.forkserver.main, collections.abc; assert collections.abc.Mapping and collections.deque"
    )
    assert "collections" in imported(code)


def test_hook_of_a_prolog_may_speak_tls_by_asyncio() -> None:
    assert imported("import nodectl.service.daemon.jobs.script_process, asyncio.sslproto as tls; assert tls.ssl")


def test_command_that_waits_for_its_step_imports_nothing_more() -> None:
    """A step may last for days: another nodectl, or none, may be installed when it says something and ends."""
    code = """
import os
from nodectl.cli.run import Started, Watch
from nodectl.client.session import Events
from nodectl.client.signals import Signals
from nodectl.model.wire import framing

class Session:
    def hold_signals(self):
        return Signals()

def event(**values):
    return framing.encode({"parameters": {"event": values}})

reader, writer = os.pipe()
os.write(writer, event(event="message", text="nodectl: warning: something") + event(event="exit", tasks=[0], status=9))
os.write(writer, event(event="end", record={"exit_status": 137, "reason": "killed", "state": "FAILED"}))
watch = Watch(Started(Session(), (1, 0), Events(reader, writer), None, 1, of_cluster=False), "node1", verbose=1)
before = set(sys.modules)
record = watch.until_end()
assert record["exit_status"] == 137
assert set(sys.modules) == before, set(sys.modules) - before"""
    assert imported(code)


def test_the_check_would_notice() -> None:
    assert "re" in imported("import re")


def test_daemons_plugins_may_execute_programs_by_asyncio() -> None:
    executed = """
import nodectl.service.daemon.main, asyncio, sys
async def execute():
    process = await asyncio.create_subprocess_exec("/bin/true", stdout=asyncio.subprocess.DEVNULL)
    return await process.wait()
assert asyncio.run(execute()) == 0 and sys.modules["subprocess"].Popen"""
    assert "locale" in imported(executed)
