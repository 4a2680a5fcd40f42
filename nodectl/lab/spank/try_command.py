"""`nodectl spank try`: run a plugin in every context of this machine, each context in a separate process.

As root: a private node of this command's own with nothing but the plugin in its stack, whose daemon has the slurmd and
the job_script contexts, and `nodectl run` on it, which has the local and the remote context. The allocator context runs
in a process of its own (`client_context`), without a command. Without root: allocator and local only.
"""

import argparse
import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.render.terminal import put, wants_colour
from nodectl.client.session import Session
from nodectl.lab.progress_line import ProgressLine
from nodectl.lab.spank import injected_failures, probe_log, report, report_text
from nodectl.lab.spank.check_command import accept_configured, located
from nodectl.lab.spank.command_line import CommandLine
from nodectl.lab.spank.probe_run import ProbeRun, directory
from nodectl.spank import S_CTX_ALLOCATOR, S_CTX_LOCAL, preload, probe_variable, versions
from nodectl.spank.inspection.plugin import inspect
from nodectl.spank.plugin_file import is_native

_USAGE = 2
_PACKAGES = "import sys; sys.path[:0] = {path!r}; "
_RUN = _PACKAGES + "from nodectl.cli.main import command; command()"
_WITHOUT_NODE = _PACKAGES + "from nodectl.lab.spank.client_context import command; command({given!r})"
_MOST_OUTPUT = 1 << 20
_PAUSE = 0.02
_LOOK = 0.5  # seconds between two looks for a hook that does not come back
_INTERRUPTS = 5  # seconds after a hook's time limit in which the hook may still return


def main(arguments: argparse.Namespace, own: argparse.ArgumentParser) -> int:
    """Run the whole command. Return the exit status."""
    words = CommandLine(arguments, own)
    if arguments.ntasks < 1 or arguments.timeout < 1:
        raise Failed("--ntasks and --timeout are whole numbers from 1", _USAGE)
    user = _user(arguments.user)
    accept_configured(arguments.settings.config)
    words.plugin = located(words.plugin, arguments.settings.config)
    signal.signal(signal.SIGTERM, _end)
    with directory() as path:
        run = ProbeRun(path, words.plugin, user)
        try:
            found = inspect(run.plugin)
        except OSError as error:
            raise Failed(f"{words.plugin}: cannot be read: {error.strerror}", _USAGE) from None
        wanted = injected_failures.parse(arguments.fail, found.hooks)
        rows = [(fail.context.number, fail.hook, fail.value) for fail in wanted]
        run.prepare(words.arguments, required=not arguments.optional, fails=rows, timeout=arguments.timeout)
        with ProgressLine() as line:
            outcome = ContextRunner(run, words, arguments, line).run_all()
        result = report.Report(found, run, words, outcome, wanted)
    if arguments.json:
        print(json.dumps(result.as_json(), indent=2))
    else:
        put(report_text.text(result, colour=wants_colour()))
    return result.status


def _end(number: int, _: object) -> NoReturn:
    """Exit on SIGTERM through the clean-up of the probe run, as after a Ctrl-C."""
    raise SystemExit(128 + number)


def _user(name: str | None) -> pwd.struct_passwd | None:
    if name is None:
        return None
    if os.geteuid() != 0:
        raise Failed("--user: only root may run steps as another user", _USAGE)
    try:
        return pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        raise Failed(f"--user {name}: there is no such user", _USAGE) from None


class ContextRunner:
    """The runner of a probe run's processes, in sequence."""

    def __init__(self, run: ProbeRun, words: CommandLine, arguments: argparse.Namespace, line: ProgressLine) -> None:
        self._probe_run = run
        self._words = words
        self._ntasks = arguments.ntasks
        self._timeout = arguments.timeout
        self._optional = arguments.optional
        self._native = is_native(run.plugin)
        self._line = line

    def run_all(self) -> report.RunResult:
        """Run all contexts possible here."""
        result = report.RunResult()
        result.processes["allocator"] = self._without_node("allocator", S_CTX_ALLOCATOR)
        if os.geteuid() == 0:
            self._node(result)
        else:
            result.processes["local"] = self._without_node("local", S_CTX_LOCAL)
        return result

    def _without_node(self, name: str, context: int) -> report.Ended:
        """Run a context without a node."""
        entry = [self._probe_run.plugin, self._words.arguments, not self._optional, "plugstack.conf:1", False]
        given = {
            "context": context,
            "node": os.uname().nodename,
            "spank_versions": versions.accepted(),
            "hook_timeout": self._timeout,
            "stack": [dict(zip(("path", "argv", "required", "origin", "missing"), entry, strict=True))],
            "run_options": self._words.run_options,
            "options": self._words.options,
            "argv": self._words.program,
        }
        code = _WITHOUT_NODE.format(path=_path(), given=json.dumps(given))
        environment = {**os.environ, **self._probe_run.environment("user")}
        if self._native:
            preload.add(environment)
        return self._run(name, [sys.executable, "-I", "-S", "-c", code], environment)

    def _node(self, result: report.RunResult) -> None:
        """Start a node, run a step there, and record the results of the contexts."""
        settings = GlobalOptions()
        settings.config, settings.socket = f"{self._probe_run.directory}/nodectl.toml", None
        log = f"{self._probe_run.directory}/daemon.log"
        try:
            with _errors_into(log), _in_environment(self._probe_run.environment("root")):
                session = Session(settings)
        except Failed:
            result.refused = _text(log).strip()
            return
        try:
            assert session.private is not None  # noqa: S101  # this configuration has no service
            if self._probe_run.user is not None:  # a private node's socket is its owner's alone
                os.chown(session.private.path, self._probe_run.user.pw_uid, -1)
            words = [
                "--socket",
                session.private.path,
                "run",
                f"-n{self._ntasks}",
                *self._words.run_options,
                *self._words.options,
                "--",
                *self._words.program,
            ]
            code = _RUN.format(path=_path())
            environment = {**os.environ, **self._probe_run.environment("user")}
            result.processes["local"] = self._run("run", [sys.executable, "-I", "-S", "-c", code, *words], environment)
            steps: Sequence[Mapping[str, Any]] = session.call("List", ended=1)["steps"]  # type: ignore[assignment]
            for step in steps:
                result.record = session.call("Wait", job=step["job"], step=step["step"], epilog=True)["record"]  # type: ignore[assignment]
        finally:
            session.close()
        result.daemon = _text(log).strip()

    def _run(self, name: str, words: list[str], environment: Mapping[str, str]) -> report.Ended:
        """Run a command as the user, with the streams in files of the run."""
        user = self._probe_run.user
        who: dict[str, Any] = {}
        if user is not None:
            who = {
                "user": user.pw_uid,
                "group": user.pw_gid,
                "extra_groups": os.getgrouplist(user.pw_name, user.pw_gid),
            }
            environment = {**environment, "HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
        paths = [f"{self._probe_run.directory}/{name}.{stream}" for stream in ("stdout", "stderr")]
        with open(paths[0], "wb") as stdout, open(paths[1], "wb") as stderr:
            process = subprocess.Popen(words, stdout=stdout, stderr=stderr, env=environment, **who)
            try:
                killed = self._watch(process, "the step" if name == "run" else f"the {name} context")
            finally:
                if process.poll() is None:
                    process.terminate()
                process.wait()
        return report.Ended(process.returncode, _text(paths[0]), _text(paths[1]), killed)

    def _watch(self, process: "subprocess.Popen[bytes]", what: str) -> bool:
        """Wait for the process to end. Return True after killing the process because a hook exceeded the time limit."""
        look = time.monotonic() + _LOOK
        while process.poll() is None:
            if time.monotonic() > look:
                look = time.monotonic() + _LOOK
                rows = self._probe_run.rows()
                self._line.tell(f"trying {what}: {len(probe_log.events(rows))} calls so far")
                open_since = probe_log.open_since(rows, process.pid)
                if open_since and time.monotonic() - open_since > self._timeout + _INTERRUPTS:
                    process.kill()
                    return True
            time.sleep(_PAUSE)
        return False


def _path() -> list[str]:
    return [word for word in sys.path if word]


def _text(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(_MOST_OUTPUT).decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def _errors_into(path: str) -> Iterator[None]:
    """Redirect standard error to a file, also for processes started meanwhile."""
    sys.stderr.flush()
    kept = os.dup(2)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(fd, 2)
    os.close(fd)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def _in_environment(more: Mapping[str, str]) -> Iterator[None]:
    """Make processes started meanwhile part of the run."""
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.pop(probe_variable.NAME, None)
