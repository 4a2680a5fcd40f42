"""A node with the recordings' scenery, on which scenarios are played."""

from __future__ import annotations

import contextlib
import fnmatch
import grp
import json
import os
import pwd
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from conformance.scenario import (
    LANGUAGES,
    MINGLED,
    RECORDED_USER,
    Result,
    by_process,
    facts,
    normal,
    settled,
    with_steps,
    wrote,
)
from conformance.scenery import FILES, INCLUDES, SCRIPTS
from conformance.shrink import PROBE
from conformance.tracers import line_of, make_faulty, make_tracer
from rootful.jobs.machine import queue
from rootful.node import NOBODY, OTHER, PATIENCE, Node, running, wait_until

COMMANDS = {"srun": "run", "sbatch": "submit", "salloc": "alloc"}
# Keys of slurm.conf that recordings have, and ours.
KEYS = {
    "TaskProlog": "task_prolog", "TaskEpilog": "task_epilog", "Prolog": "prolog", "Epilog": "epilog",
    "PrologSlurmctld": "prolog_slurmctld", "EpilogSlurmctld": "epilog_slurmctld",
}  # fmt: skip
# What somebody did by hand while tasks ran: a signal to the command, or `nodectl cancel` of its job, as whom.
HANDS: dict[str, int | tuple[pwd.struct_passwd, tuple[str, ...]]] = {
    "core/09_scancel_signal_USR1": (NOBODY, ("--signal=USR1", "{job}")),
    "core/09b_scancel_signal_USR1_step": (NOBODY, ("--signal=USR1", "{job}.0")),
    "core/09e_scancel_step": (NOBODY, ("{job}.0",)),
    "core/09j_scancel_by_other_user": (OTHER, ("{job}",)),
    "misc/02_scancel_by_bob": (OTHER, ("{job}",)),
    "core/10c_srun_SIGTERM": signal.SIGTERM,
    "core/10d_srun_SIGUSR1": signal.SIGUSR1,
    "core/10e_srun_SIGHUP": signal.SIGHUP,
}
# A minute, and a warning 20 seconds before its end.
SHORTER = {"--time=1": "--time=0:10", "--signal=USR1@20": "--signal=USR1@2"}
PEOPLE = {"alice": NOBODY, "bob": OTHER, "root": None}
LIMITS = "ulimit -Sn 1234; ulimit -Ss 1024; ulimit -Su 5000; ulimit -Sc 0"
_EXPORTED = {"MYVAR": "mine", "A": "client-a", "B": "client-b", "EMPTY": "", "MULTI": "l1\nl2", "SPACE": 'a b "c"'}
_PRESET = {"SLURM_SPANK__SLURM_SPANK_OPTION_trace_trace_opt": "fromenv"}
ENVIRONMENTS = {
    "opt/16_env_SLURM_SPANK": _PRESET,
    "opt/16c_env_and_cmdline": _PRESET,
    "opt/16d_env_raw": {"_SLURM_SPANK_OPTION_trace_trace_opt": "raw"},
    "prolog/10d_env_client_spank": {"SPANK_MINE": "1"},
    "prolog/16_srunprolog": {"SLURM_PROLOG": "@/jobs/prolog", "SLURM_EPILOG": "@/jobs/epilog"},
    "env/SBATCH_EXPORT": {**_EXPORTED, "SBATCH_EXPORT": "NONE"},
    "env/export_*": _EXPORTED,
}


@dataclass
class Played:
    """A run here: what came of it, and the records of every hook."""

    result: Result
    records: list[dict[str, Any]]
    probes: list[dict[str, Any]]  # what programs told of their surroundings


class Theatre:
    """A node with the recordings' scenery: programs, plugins, directories by the recordings' names below `@`."""

    def __init__(self, node: Node, suffix: str) -> None:
        self.node = node
        self.suffix = suffix
        self.at = node.dir
        self.configuration = ""
        self.out = node.dir / "trace.jsonl"
        self.out.touch()
        self.out.chmod(0o666)
        for name in ("plugin", "jobs", "etc/plugstack.d/more"):
            (self.at / name).mkdir(parents=True, exist_ok=True)
        for name, text in SCRIPTS.items():
            self.script(name, text)
        for name, text in FILES.items():
            (self.node.scratch / name).write_text(text, encoding="utf-8")
        for name, text in INCLUDES.items():
            (self.at / "etc" / name).write_text(self.stack_text(text), encoding="utf-8")
        (self.at / "etc/plugstack.d/noperm.conf").chmod(0o600)
        for name in ("trace", "traceb", "tracetab"):
            make_tracer(self.at / "plugin" / f"{name}{suffix}")
        if suffix == ".so":
            make_faulty(self.at / "plugin" / "bad")
        done = node.nodectl("slurm-commands", str(self.at / "bin"))
        assert done.returncode == 0, done.stderr

    def script(self, name: str, text: str) -> None:
        """A program of the recordings: in `@/jobs`, or in the working directory where its name begins with ./"""
        directory = self.node.scratch if name.startswith("./") else self.at / "jobs"
        path = directory / name
        path.write_text(text.replace("@", str(self.at)), encoding="utf-8")
        path.chmod(0o644 if name == "./noexec.sh" else 0o755)

    def stack_text(self, text: str, more: str = "") -> str:
        """A recorded plugstack.conf, with our tracer in the place of theirs."""
        text = text.replace("jcscript=1", "calls=1")
        text = re.sub(r"(\s)(\S*?)(trace(?:b|tab)?)(\.so)?(?=\s)", rf"\1\2\3\4 out={self.out}{more}", f"{text}\n")
        return text.replace("@", str(self.at)).replace(".so ", f"{self.suffix} ")

    def play(self, row: Mapping[str, Any]) -> Played:
        """Runs the scenario here."""
        self.configure(str(row.get("configuration", "")))
        calls = " calls=1" if "calls" in row else ""
        (self.at / "etc/plugstack.conf").write_text(
            self.stack_text(row.get("plugstack") or "", calls), encoding="utf-8"
        )
        os.truncate(self.out, 0)
        before, command = self.last_job(), row["command"][0]
        words = [self.here(word) for word in row["command"][1:]]
        done = self.run(row, command, words)
        wait_until(lambda: not queue(self.node), "the job is over")
        self.node.assert_clean()
        probes = self.probes(done.stdout, words)
        records = self.records()
        lines = list(map(line_of, records))
        stdout, stderr = (text.replace(str(self.at), "@") for text in (done.stdout, done.stderr))
        states = self.states(before, steps=command == "srun")
        result = Result(done.returncode, normal(stdout, command), facts(stderr), states, by_process(lines))
        result.files = {path: self.written(path) for path in row.get("files", {})}
        result.stderr = done.stderr
        mingled = row["scenario"] in MINGLED
        if not mingled:
            check_barriers(lines)
        return Played(settled(result, mingled=mingled), records, probes)

    def here(self, word: str) -> str:
        """A word of a recorded command with our directories and users, and with seconds in the place of minutes."""
        word = SHORTER.get(word, word)
        for theirs, ours in (("=bob", OTHER.pw_name), ("=peers", grp.getgrgid(OTHER.pw_gid).gr_name)):
            word = f"{word.removesuffix(theirs)}={ours}" if word.endswith(theirs) else word
        word = word.replace("; srun ", f"; {self.at}/bin/srun ")  # PATH may be a login's
        return word.replace("@/home/bob", str(self.node.scratch)).replace("@/", f"{self.at}/")

    def configure(self, text: str) -> None:
        """Starts the node anew where what slurm.conf had says otherwise than for the scenario before."""
        if text == self.configuration:
            return
        self.configuration = text
        lines = [line.partition("=") for line in text.splitlines()]
        wanted = {KEYS[name]: value.replace("@", str(self.at)) for name, _, value in lines if name in KEYS}
        for key in KEYS.values():
            self.node.values.pop(key, None)
        self.node.configure(**wanted)
        (self.at / "etc/plugstack.conf").write_text("", encoding="utf-8")  # the daemon loads what stands there
        self.node.restart()

    def run(self, row: Mapping[str, Any], command: str, words: list[str]) -> subprocess.CompletedProcess[str]:
        """The command to its end, as the recorded user's counterpart."""
        environment = {"FOO": "bar"}
        for pattern, more in ENVIRONMENTS.items():
            if fnmatch.fnmatchcase(row["scenario"], pattern):
                environment |= {name: value.replace("@", str(self.at)) for name, value in more.items()}
        if command != "srun":  # Slurm's commands are found by their names
            environment["PATH"] = f"{self.at}/bin:/usr/bin:/bin"
        if row["scenario"] == "env/rlimits_sbatch":
            return self.typed("bash", "-c", f'{LIMITS}; exec "$0" "$@"', command, *words, env=environment)
        if row["scenario"] in HANDS:
            return self.by_hand(HANDS[row["scenario"]], row, words, environment)
        if command in COMMANDS:
            user = PEOPLE[row.get("user", "alice")]
            return self.node.nodectl(COMMANDS[command], *words, user=user, env=environment)
        return self.typed(command, *words, env=environment)

    def by_hand(
        self, hand: int | tuple[pwd.struct_passwd, tuple[str, ...]], row: Mapping[str, Any], words: list[str],
        environment: Mapping[str, str],
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """A run to its end, to which that is done when each of its tasks has said that it is ready, or, where they say
        nothing, when they are about to become their program.
        """
        client = self.node.popen(*words, user=NOBODY, env=environment)
        assert client.stdout is not None
        tasks = sum("task_init[" in line for line in row["hooks"])
        said = ""
        if "./trap.sh" in words:
            said = "".join(client.stdout.readline() for _ in range(tasks))
        wait_until(
            lambda: sum(":task_init[" in line_of(one) for one in self.records()) == tasks, "all tasks have begun"
        )
        if isinstance(hand, int):
            client.send_signal(hand)
        else:
            user, cancel = hand
            job = self.node.last_job()
            self.node.nodectl("cancel", *(word.format(job=job) for word in cancel), user=user)
        out, error = client.communicate(timeout=2 * PATIENCE)
        return subprocess.CompletedProcess(words, client.returncode, said + out, error)

    def probes(self, stdout: str, words: list[str]) -> list[dict[str, Any]]:
        """What programs told of their surroundings, on stdout or in the job's file."""
        texts = [stdout]
        for word in words:
            file = self.node.scratch / word.removeprefix("--output=")
            if word.startswith("--output=") and file.exists():
                texts.append(file.read_text(encoding="utf-8"))
        return [json.loads(line) for text in texts for line in text.splitlines() if line.startswith(PROBE)]

    def typed(self, *words: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """A line of shell."""
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=2 * PATIENCE,
            env=self.node.environment(env), cwd=self.node.scratch, user=NOBODY.pw_uid, group=NOBODY.pw_gid,
            extra_groups=[],
        )  # fmt: skip

    def states(self, before: int, *, steps: bool) -> list[str]:
        """Of the jobs that came after the one with the number `before`; of a run its step's, which may be a record
        where its job has none.
        """
        if steps:
            return [str(step["state"]) for step in self.ended() if int(str(step["job"])) > before]
        told = json.loads(self.node.nodectl("acct", "--json", "-X").stdout)["jobs"]
        return sorted(str(one["state"]) for one in told if int(one["job"]) > before)

    def written(self, path: str) -> list[str]:
        """What a job wrote into its file, which goes."""
        file = self.node.scratch / path
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        file.unlink(missing_ok=True)
        return wrote(text.replace(str(self.at), "@").replace(NOBODY.pw_name, RECORDED_USER))

    def try_tracer(self) -> list[dict[str, Any]]:
        """What `nodectl spank try` of the tracer has it write down."""
        os.truncate(self.out, 0)
        tracer = str(self.at / f"plugin/trace{self.suffix}")
        done = self.node.nodectl("spank", "try", "--user", NOBODY.pw_name, tracer, f"out={self.out}", "calls=1")
        assert done.returncode == 0, done.stdout + done.stderr
        return self.records()

    def records(self) -> list[dict[str, Any]]:
        """What the tracers wrote down; of a job_epilog's line, which comes when the command has ended, there may be a
        part.
        """
        text = self.out.read_text(encoding="utf-8", errors="surrogateescape").replace(str(self.at), "@")
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def ended(self) -> list[dict[str, object]]:
        return self.node.call("List", ended=2)["steps"]  # type: ignore[return-value]

    def last_job(self) -> int:
        return max((int(str(step["job"])) for step in self.ended()), default=0)


class Theatres:
    """One theatre for each language. Both play a scenario at the same time, as most of its time is waiting."""

    def __init__(self, theatres: Mapping[str, Theatre]) -> None:
        self.theatres = theatres
        self.pool = ThreadPoolExecutor(len(theatres))
        self.played: dict[str, dict[str, Future[Played]]] = {}
        self.trials: dict[str, Future[list[dict[str, Any]]]] = {}

    def play(self, row: Mapping[str, Any]) -> dict[str, Played]:
        """What came of the scenario in each language; it is played once."""
        name = str(row["scenario"])
        if name not in self.played:
            self.played[name] = {
                language: self.pool.submit(theatre.play, row) for language, theatre in self.theatres.items()
            }
        return {language: played.result() for language, played in self.played[name].items()}

    def tried(self) -> dict[str, list[dict[str, Any]]]:
        """The records of a trial of the tracer, which calls every context, in each language; there is one trial."""
        if not self.trials:
            self.trials = {
                language: self.pool.submit(theatre.try_tracer) for language, theatre in self.theatres.items()
            }
        return {language: trial.result() for language, trial in self.trials.items()}

    def logged(self, language: str) -> str:
        """What the node's processes wrote."""
        return self.theatres[language].node.logged()


@contextlib.contextmanager
def theatres_open() -> Iterator[Theatres]:
    """Started nodes with everything in place; at the end they must be clean."""
    with contextlib.ExitStack() as nodes:
        theatres = {}
        for language, suffix in LANGUAGES.items():
            node = nodes.enter_context(running())
            directories = [str(node.plugins), str(node.dir / "plugin")]
            node.configure(plugstack_config=str(node.dir / "etc/plugstack.conf"), plugin_dir=directories)
            node.restart()
            theatres[language] = Theatre(node, suffix)
        opened = Theatres(theatres)
        with opened.pool:
            yield opened


def check_barriers(lines: list[str]) -> None:
    """The orders between processes that are promised: no code of the user's before the last task_post_fork, the whole
    step's hooks before and after its tasks'.
    """
    steps: dict[str, list[str]] = {}
    for (context, step, hook, _), _ in with_steps(lines):
        if context == "R":
            steps.setdefault(step, []).append(hook)
    for hooks in steps.values():
        places: dict[str, list[int]] = {}
        for place, hook in enumerate(hooks):
            places.setdefault(hook, []).append(place)
        for earlier, later in (
            ("user_init", "task_init_privileged"),
            ("task_post_fork", "task_init"),
            ("task_exit", "exit"),
        ):
            assert max(places.get(earlier, [-1])) < min(places.get(later, [len(hooks)])), lines
