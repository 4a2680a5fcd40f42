"""What users do wrong most often: the one line that they get says what is wrong, where, and what to do.

A row is what is typed, the exit status, and words that the answer must have: the value or name that is wrong, the
option, file or line where it stands, and what would be right. One service is for all rows.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, Node, running, wait_until

CONFIGURATIONS = {
    "misspelt": "kil_wait = 3\n",
    "text": 'kill_wait = "soon"\n',
    "negative": "kill_wait = -1\n",
    "broken": "kill_wait = = 3\n",
    "section": "[queue]\nkill_wait = 3\n",
    "twice": "\nkill_wait = 1\nkill_wait = 2\n",
    "gres": 'gres = ["Name=gpu Fil=/dev/null"]\n',
}
PLUGINS = {
    "comma": "def slurm_spank_init(s c):\n",
    "divides": "1 / 0\n",
    "inti": "def slurm_spank_inti(s, c, v):\n    return 0\n",
    "few": "def slurm_spank_init(s):\n    return 0\n",
    "word": "def slurm_spank_init(s, c, v):\n    return 'well'\n",
    "key": "def slurm_spank_user_init(s, c, v):\n    return {}['x']\n",
    "minus": "def slurm_spank_task_init(s, c, v):\n    return -1\n",
}
SCRIPTS = {
    "dos": ("#!/bin/sh\r\necho\r\n", 0o755),
    "bare": ("echo hello\n", 0o755),
    "locked": ("#!/bin/sh\n", 0o644),
    "lost": ("#!/no/such/sh\n", 0o755),
    "options": ("#!/bin/sh\n#SBATCH --ntsks=2\n", 0o755),
}

# typed ({} is the test's directory), exit status, what the answer has.
OPTIONS = [
    ("rn -n2 true", 2, ["'rn'", "nearest is run"]),
    ("run", 1, ["No command given", "nodectl run -n2 hostname"]),
    ("run --ntsks=2 true", 255, ["'--ntsks'", "nearest is --ntasks"]),
    ("run -n zwei true", 1, ['"zwei"', "--ntasks", "--ntasks=N: number of tasks"]),
    ("run -n 100000 true", 1, ["--ntasks", "100000", "max_tasks_per_node = 512"]),
    ("run -c 9999 true", 1, ["--cpus-per-task", "9999", "CPUs of this machine"]),
    ("run --mem=lots true", 1, ['"lots"', "--mem=SIZE", "K, M, G, T"]),
    ("run --mem=999999999G true", 1, ["--mem", "MiB of this machine"]),
    ("run -t soon true", 1, ["'soon'", "--time=TIME", "H:M:S"]),
    ("run --cpu-bind=coress true", 1, ["'coress'", "threads|cores|sockets", "--cpu-bind=help"]),
    ("run --cpu-bind=map_cpu:9999 true", 1, ["CPU binding outside", "allocated CPUs are"]),
    ("run --hint=fast true", 1, ["'fast'", "--hint", "compute_bound"]),
    ("run -m sideways true", 1, ["'sideways'", "--distribution=DIST", "block|cyclic"]),
    ("run -w elsewhere true", 1, ["elsewhere", "`nodectl node`"]),
    ("run -N2 true", 1, ["1 nodes asked for 2", "leave -N out"]),
    ("run --gpus=2 true", 1, ["2 GPUs", "this node has none"]),
    ("run --gres=fpga:1 true", 1, ["--gres=fpga:1", "only gpu"]),
    ("run --secure=max true", 1, ["--secure", "'max'", "none, default, strict"]),
    ("run --container-ns=nat true", 1, ["--container-ns", "'nat'", "pid, ipc, uts, net"]),
    ("run --mpi=lam true", 1, ["--mpi=lam", "none, pmi2, pmix"]),
    ("run --propagate=FILES true", 1, ["--propagate", "'FILES'", "NOFILE"]),
    ("run --signal=WAKE true", 1, ["'WAKE'", "--signal", "SIGNAL[@SECONDS]"]),
    ("run --begin=never true", 1, ["'never'", "--begin=TIME", "now+1hour"]),
    ("run --dependency=before:1 true", 1, ["'before'", "afterok"]),
    ("run --dependency=afterok:999 true", 1, ["no job 999", "`nodectl queue`"]),
    ("run --qos=gold true", 1, ["gold", "the key qos"]),
    ("run --reservation=course true", 1, ["no reservation course", "`nodectl reserve list`"]),
    ("run --jobid=999 true", 1, ["no job 999", "`nodectl queue`"]),
    ("run --async true", 1, ["--async", "`nodectl submit --wrap`"]),
    ("run --io-max=/dev/nosuch:rbps=1 true", 1, ["--io-max", "'/dev/nosuch'", "No such file"]),
    ("submit --cpus=4 --wrap true", 255, ["'--cpus' is ambiguous", "--cpus-per-task"]),
    ("submit -a 5-1 --wrap true", 1, ["'5-1'", "--array"]),
    (f"submit -J {'x' * 1025} --wrap true", 1, ["--job-name: longer than 1024 characters"]),
    (f"run -J {'x' * 1025} true", 1, ["--job-name: longer than 1024 characters"]),
    (f"submit --comment={'x' * 1025} --wrap true", 1, ["--comment: longer than 1024 characters"]),
    ("queue -t dead", 2, ["'dead'", "PD, R, S, CG"]),
    ("queue -o colour", 2, ["'colour'", "job, user, name"]),
    ("acct -o size", 1, ["'size'", "--helpformat"]),
    ("acct -S yestrday", 1, ["'yestrday'", "HH:MM", "yesterday"]),
    ("signal -s WAKE 1", 2, ["'WAKE'", "`kill -l`"]),
    ("cancel", 2, ["nothing to cancel", "--me"]),
    ("submit /bin/true", 1, ["/bin/true", "not a batch script", "nodectl submit --wrap 'COMMAND'"]),
    ("explain", 2, ["required: JOB", "`last` is your newest job"]),
    ("acct last", 2, ["one word too many: last", "nodectl acct -j last"]),
    ("cancel one", 2, ["'one' is no job", "42_[0-4]"]),
    ("cancel 999", 1, ["cancel 999", "no job 999"]),
    ("show 999", 1, ["no step 999.0", "`nodectl ps --ended`"]),
    ("node drian", 2, ["'drian'", "nearest is drain"]),
    ("undrain", 2, ["'undrain'", "here it is `nodectl node resume`"]),
    ("bulk -nx true", 255, ["'x', N, N%, +N or -N is allowed for --ntasks."]),
    ("bulk --quiet true", 255, ["'--quiet' is srun's, and not offered here"]),
    ("bulk --retry-failed --joblog /nonexistent true", 255, ["joblog /nonexistent", "No such file"]),
    ("topo --machine 2s:4x", 1, ["'4x'", "as in 2s:4c:2t:2n"]),
    ("--socket /nonexistent ps", 1, ["/nonexistent", "NODECTL_SOCKET"]),
]  # fmt: skip
FILES = [
    ("run nosuchprogram", 2, ["'nosuchprogram'", "in no directory of PATH"]),
    ("run {}/locked", 13, ["/locked'", "Permission denied", "not executable"]),
    ("run {}/bare", 8, ["/bare'", "begins with #!"]),
    ("run {}/lost", 2, ["/lost'", "its interpreter is missing"]),
    ("run {}/dos", 2, ["/dos'", "carriage return", "dos2unix"]),
    ("bulk {}/dos ::: 1", 1, ["/dos'", "carriage return", "dos2unix"]),
    ("run /tmp", 13, ["'/tmp'", "it is a directory"]),
    ("run -o /root/out true", 1, ["'/root/out'", "Permission denied (as nobody)"]),
    ("run -i /nonexistent true", 1, ["input file '/nonexistent'", "No such file"]),
    ("run -D /nonexistent true", 0, ["'/nonexistent'", "going to /tmp instead"]),
    ("run --task-prolog=/nonexistent true", 127, ["task prolog '/nonexistent'", "127", "what is missing"]),
    ("submit {}/dos", 1, ["/dos", "carriage returns", "dos2unix"]),
    ("submit {}/bare", 1, ["/bare", "not a batch script", "#!/bin/sh"]),
    ("submit {}/options", 255, ["/options", "line 2", "nearest is --ntasks"]),
    ("--config {}/misspelt config", 1, ["/misspelt", "kil_wait", "did you mean kill_wait?"]),
    ("--config {}/text config", 1, ["/text", "kill_wait", "a number of seconds from 0"]),
    ("--config {}/negative config", 1, ["kill_wait", "is -1", "a number of seconds from 0"]),
    ("--config {}/broken config", 1, ["/broken", "no TOML", "line 1"]),
    ("--config {}/section config", 1, ["queue", "keys are written without sections"]),
    ("--config {}/twice config", 1, ["/twice", "line 3"]),
    ("--config {}/gres config", 1, ["'Fil=/dev/null'", "name, type, file"]),
]
FORBIDDEN = [
    ("run --uid=root true", 1, ["--uid=root", "only root"]),
    ("run --gid=root true", 1, ["--gid=root", "nobody is not in this group"]),
    ("run --nice=-100 true", 1, ["--nice", "only an admin"]),
    ("run --priority=5 true", 1, ["--priority", "only an admin"]),
    ("node drain broken", 1, ["members of the admin group", "admin_group"]),
    ("reserve create x --duration=1 --users=nobody", 1, ["members of the admin group", "admin_group"]),
    ("slurm-commands /root/x", 1, ["/root/x", "Permission denied"]),
]
BY_ROOT = [
    ("run --uid=nosuchuser true", 1, ["--uid", "no user 'nosuchuser'"]),
    ("run --gid=nosuchgroup true", 1, ["--gid", "no group 'nosuchgroup'"]),
    ("reserve create x --duration=1 --users=nosuchuser", 1, ["'nosuchuser'", "`getent passwd`"]),
    ("reserve create x --duration=1 --users=nobody --cores=9999", 1, ["cores, and 9999 are asked for"]),
    ("init --yes --memory=999999G", 2, ["--memory", "999999G is more than the memory of this machine"]),
    ("reserve delete nosuch", 1, ["'nosuch'", "`nodectl reserve list`"]),
]
IN_PLUGINS = [
    ("comma", ["plugstack.conf:1", "comma.py:4", "syntax error"]),
    ("divides", ["plugstack.conf:1", "divides.py:4", "ZeroDivisionError"]),
    ("inti", ["inti.py:4", "slurm_spank_inti is unknown", "nearest is slurm_spank_init"]),
    ("few", ["few.py:4", "takes 1 parameter(s)", "called with 3"]),
    ("word", ["slurm_spank_init", "'well'", "not a number", "word.py"]),
    ("key", ["slurm_spank_user_init", "KeyError: 'x'", "line 5", "key.py"]),
    ("minus", ["task 0", "slurm_spank_task_init", "returned -1", "minus.py"]),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Node]:
    """A node with files of all kinds, in the directory that the rows call {}."""
    with running(over_subscribe="no", select_type="select/cons_tres") as node:
        for name, text in CONFIGURATIONS.items():
            (node.dir / name).write_text(text, encoding="utf-8")
        for name, (text, mode) in SCRIPTS.items():
            (node.dir / name).write_bytes(text.encode())
            (node.dir / name).chmod(mode)
        yield node


def _answers(done: subprocess.CompletedProcess[str], status: int, words: list[str]) -> None:
    assert done.returncode == status, done.stderr
    first = done.stderr.splitlines()[0]
    assert [word for word in words if word not in first] == [], first
    assert len(first) < 600
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("typed", "status", "words"), OPTIONS + FILES + FORBIDDEN)
def test_a_mistake_of_a_user_is_told(site: Node, typed: str, status: int, words: list[str]) -> None:
    _answers(site.nodectl(*typed.format(site.dir).split(), user=NOBODY, cwd="/", stdin=""), status, words)


@pytest.mark.parametrize(("typed", "status", "words"), BY_ROOT)
def test_a_mistake_of_an_admin_is_told(site: Node, typed: str, status: int, words: list[str]) -> None:
    _answers(site.nodectl(*typed.split(), cwd="/", stdin=""), status, words)


@pytest.mark.parametrize(("plugin", "words"), IN_PLUGINS)
def test_a_mistake_in_a_plugin_is_told(site: Node, plugin: str, words: list[str]) -> None:
    site.plugstack(f"required {site.plugin(plugin, PLUGINS[plugin])}\n")
    try:
        _answers(site.nodectl("run", "true", user=NOBODY, cwd="/", stdin=""), 1, words)
    finally:
        site.plugstack("")


def test_what_others_could_have_written_is_not_read_and_the_remedy_is_told(site: Node) -> None:
    open_to_all = Path(site.dir / "open.toml")
    open_to_all.write_text("kill_wait = 1\n", encoding="utf-8")
    open_to_all.chmod(0o666)
    done = site.nodectl("--config", str(open_to_all), "config", cwd="/")
    _answers(done, 1, [str(open_to_all), "writable by others", "mode 0666", "chmod go-w"])


def test_a_machine_that_is_full_says_what_to_do(site: Node) -> None:
    with subprocess.Popen(site.command("run", "--exclusive", "sleep", "infinity"), stdin=subprocess.DEVNULL) as full:
        try:
            wait_until(lambda: "RUNNING" in str(site.call("Queue")), "the machine is full", PATIENCE)
            done = site.nodectl("run", "--immediate", "true", user=NOBODY, cwd="/")
            _answers(done, 1, ["Requested nodes are busy", "without --immediate it waits", "`nodectl queue`"])
        finally:
            full.terminate()
