"""README and the guides that it names are followed as a new user would: each command as printed, on a Debian 12 with
sudo, a compiler and man. In the place of a reader's own programs there are some that do little.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from vm import pages, service
from vm.reader import (
    BIG,
    ELSEWHERE,
    NOT_HERE,
    OWN,
    PLACE,
    README,
    SITE,
    SUDOERS,
    big_machine,
    follows,
    guide,
    job,
    of_job,
    on_a_big_machine,
    told,
    typed,
    write,
)
from vm.service import Sleeper

pytestmark = pytest.mark.all


@pytest.fixture(scope="module", autouse=True)
def reader() -> Iterator[None]:
    """alice may become root, and has programs of her own."""
    SUDOERS.write_text("alice ALL=(ALL) NOPASSWD: ALL\n")
    added = {Path("/usr/local/bin", name): script for name, script in ELSEWHERE.items()}
    for path, script in added.items():
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    yield
    for path in (SUDOERS, *added):
        path.unlink()
    shutil.rmtree("/opt/site", ignore_errors=True)


@pytest.fixture(autouse=True)
def place() -> Iterator[None]:
    if (os.cpu_count() or 1) < 16:
        pytest.skip("the pages speak of a machine with 16 CPUs")
    shutil.rmtree(PLACE, ignore_errors=True)
    service.run("install", "--directory", "--owner=alice", "--group=alice", str(PLACE))
    for name in OWN:
        write(name, "#!/bin/sh\nexit 0\n")
    yield
    shutil.rmtree(PLACE)


def compiles(commands: Sequence[str]) -> None:
    for name in ("nofile.c", "mine.c"):
        write(name, pages.fenced(guide("spank-plugins"), "c"))
    for command in commands:
        assert told(command) == ""


@follows((README, "Two commands"))
def test_the_manual_is_there(printed: list[str]) -> None:
    assert "nodectl run" in told(printed[-1])


def test_a_big_machine() -> None:
    """The service is started for all of these once: under emulation that takes its time."""
    service.CONFIG.write_text(BIG)
    service.systemctl("restart", service.UNIT)
    for page, title, follow in on_a_big_machine:
        follow([line for line in pages.commands(page)[title] if line not in NOT_HERE])


@big_machine(README, "Two commands")
def two_commands(printed: list[str]) -> None:
    run, _ = printed
    assert told(run) == ""


@big_machine(README, "A machine that many people share")
def shared_machine(printed: list[str]) -> None:
    hungry, submit, explain = printed
    is_out_of_memory(hungry)
    first = Sleeper("alice", 0, "--gpus=2")
    number = int(told(submit).split()[-1])
    assert "1 GPU asked for: this node has 2, of which 0 are free" in " ".join(told(of_job(explain, number)).split())
    assert first.let_go()[0] == 0
    has_ended(number)


def has_ended(number: int) -> None:
    service.wait_until(lambda: "COMPLETED" in typed(f"nodectl show {number}").stdout, "the script has ended")


def is_out_of_memory(command: str) -> None:
    done = typed(command)
    assert (done.returncode, "out of memory: task 0: killed process" in done.stderr) == (1, True), done
    assert " at the limit of 64 MiB" in done.stderr


@follows((README, "You write a plugin"))
def test_readme_a_plugin(printed: list[str]) -> None:
    *compile_, attempt = printed
    compiles(compile_)
    assert "prints: 64\n" in told(attempt)


@follows((README, "Thousands of short commands"))
def test_readme_short_commands(printed: list[str]) -> None:
    gzip, flac = printed
    for name in ("one.log", "two.log", "three.wav"):
        write(name, name)
    told(gzip)
    told(flac)
    assert {"one.log.gz", "two.log.gz", "three.flac", "log"} <= {path.name for path in PLACE.iterdir()}


@follows((README, "You want to know what happens"), (guide("read-a-launch"), "Read a launch"))
def test_launch_is_read(printed: list[str]) -> None:
    trace, hooks = printed
    assert "task_p_pre_setuid" in told(of_job(trace, job()))
    assert "task_p_pre_setuid" in told(hooks)


@follows((guide("read-a-launch"), "Why did it get these CPUs?"))
def test_cpus_are_explained(printed: list[str]) -> None:
    explain, bind = printed
    step = Sleeper("alice")
    assert "rule: " in told(of_job(explain, step.job))
    assert step.let_go()[0] == 0
    assert told(bind)


@follows((guide("read-a-launch"), "Why did it end?"))
def test_end_is_explained(printed: list[str]) -> None:
    (show,) = printed
    assert "COMPLETED" in told(of_job(show, job()))


@big_machine(guide("confinement"), "What a step is confined to")
def confined_step(printed: list[str]) -> None:
    hungry, limited, update, all_steps = printed
    is_out_of_memory(hungry)
    assert told(limited) == ""
    step = Sleeper("alice", 0, "--mem=4G")
    told(of_job(update, step.job))
    assert json.loads(service.nodectl("show", "--json", str(step.job)))["limits"]["pids.max"] == "100"
    told(all_steps)
    everybodys = service.CGROUPS / service.STEPS_GROUP[1:] / "../memory.max"
    assert int(everybodys.read_text()) == 100 << 30
    service.systemctl("revert", service.STEPS_UNIT)
    assert step.let_go()[0] == 0


@big_machine(guide("confinement"), "Directories and namespaces of a job's own")
def directories_of_a_jobs_own(printed: list[str]) -> None:
    alone, enter, bcast = printed
    said = told(alone)
    assert "lo:" in said
    assert len(re.findall(r"^ *\d+ \S+ +\d\d:\d\d:\d\d ", said, re.MULTILINE)) <= 4, said
    write("data.bin", "data")
    step = Sleeper("alice")
    told(of_job(enter, step.job))
    told(of_job(bcast, step.job))
    assert told(f"echo cat /tmp/data.bin | {of_job(enter, step.job)}") == "data"
    assert step.let_go()[0] == 0


@big_machine(guide("jobs"), "Jobs that wait for their turn")
def jobs_that_wait(printed: list[str]) -> None:
    script, line, array, alloc, part, now, cancel, cancel_mine, update, mail, notify, reserve, drain = printed
    write("job.sh", pages.fenced(guide("jobs"), ""))
    has_ended(int(told(script).split()[-1]))
    told(line)
    held = told("nodectl submit --hold job.sh").split()[-1]
    tasks = told(of_job(array, int(held))).split()[-1]
    for command in (alloc, part, now, mail):  # a mail is sent where there is a sendmail, and else there is a warning
        assert typed(command).returncode == 0
    told(notify)
    service.wait_until(Path("/home/alice/jobs.log").exists, "the end is told")
    told(of_job(update, int(held)))
    step = Sleeper("alice")
    names = {"7": held, "8_3": f"{tasks}_3", "9.1": f"{step.job}.0"}
    told(" ".join(names.get(word, word) for word in cancel.split()))
    assert service.finished(step.client)[0] != 0
    assert held not in told("nodectl queue").split()
    told(cancel_mine)
    told(reserve)
    assert "course" in told("nodectl reserve")
    told("sudo nodectl reserve delete course")
    told(drain)
    told("sudo nodectl node resume")


@follows((guide("many-commands"), "Thousands of short commands"))
def test_many_commands(printed: list[str]) -> None:
    gzip, flac, solve, resume, usage, most, sums = printed
    for name in ("one.log", "three.wav", "seeds.txt"):
        write(name, "1\n2\n")
    write("commands.txt", "echo one\necho two\n")
    told(gzip)
    told(flac)
    told(solve)
    assert len((PLACE / "log").read_text().splitlines()) == 1 + 6
    (PLACE / "log").unlink()
    assert sorted(told(resume).split()) == ["one", "two"]
    assert told(resume) == ""
    assert sorted(told(usage).split()) == ["one", "two"]
    for command in (most, sums):
        assert sorted(json.loads(line)["seq"] for line in told(command).splitlines()) == [1, 2]


@follows((guide("many-commands"), "Python scripts that import much"))
def test_many_python_scripts(printed: list[str]) -> None:
    (solve,) = printed
    write("solve.py", "import sys\nprint('decimal' in sys.modules, sys.argv[1])\n")
    write("cases", "1\n2\n")
    assert sorted(told(solve.replace("numpy,scipy.linalg", "json,decimal")).splitlines()) == ["True 1", "True 2"]


@big_machine(guide("gpus"), "GPUs that jobs share")
def gpus_that_jobs_share(printed: list[str]) -> None:
    whole, memory, shard = printed
    write("job.sh", "#!/bin/sh\necho $SLURM_SHARDS_ON_NODE\n")
    told(whole)
    told(memory)
    number = int(told(shard).split()[-1])
    has_ended(number)
    assert told(f"nodectl log {number}") == "1\n"


@follows((guide("plugins"), "Write a task plugin"))
def test_a_task_plugin(printed: list[str]) -> None:
    listed, nice = printed
    (SITE / "task").mkdir(parents=True)
    (SITE / "task/nice.py").write_text(pages.fenced(guide("plugins"), "python"))
    (SITE.parent / "try.toml").write_text(pages.settings(guide("plugins")))
    assert "task/nice" in told(listed)
    assert told(nice) == "5\n"


@follows((guide("plugins"), "Compiled plugins"))
def test_a_compiled_container_plugin(printed: list[str]) -> None:
    (compile_,) = printed
    write("mine.c", pages.fenced(guide("plugins"), "c"))
    assert told(compile_) == ""


@follows((guide("plugins"), "SPANK plugins"))
def test_headers_are_found(printed: list[str]) -> None:
    compiles(printed)


@follows((guide("plugins"), "Built in"))
def test_a_built_in_plugin(printed: list[str]) -> None:
    configure, option, variable = printed
    stack = Path("/etc/nodectl/plugstack.conf")
    assert not stack.exists()
    told(configure)
    try:
        assert (told(option), told(variable)) == ("7\n", "11\n")
    finally:
        stack.unlink()


@follows((guide("select-plugins"), "Try a select plugin in one command"))
def test_a_select_plugin(printed: list[str]) -> None:
    (check,) = printed
    write("first_fit.py", pages.fenced(guide("select-plugins"), "python"))
    assert "first_fit" in told(check)


@follows((guide("spank-plugins"), "Test a SPANK plugin in one command"))
def test_a_spank_plugin(printed: list[str]) -> None:
    compile_, attempt, many, fail, check = printed
    compiles([compile_])
    write("nofile.py", pages.fenced(guide("spank-plugins"), "python"))
    assert "prints: 64\n" in told(attempt)
    done = typed(many)
    assert (done.returncode, "ValueError: invalid literal for int()" in done.stdout) == (1, True), done
    done = typed(fail)
    assert (done.returncode, "rc -1 in place of 0" in done.stdout) == (1, True), done
    assert "has to be compiled again for Slurm 24.11" in typed(check).stdout


@follows((guide("service"), "A machine that many people share"))
def test_the_service_is_installed(printed: list[str]) -> None:
    (doctor,) = printed
    assert told(doctor).splitlines()[-1].endswith(" 0 fail")


@follows((guide("service"), "Logins stay in a corner"))
def test_logins_are_fenced(printed: list[str]) -> None:
    on, shown, off = printed
    assert "user.slice" in told(f"sudo {on}")
    assert "weight 100" in told(shown)
    assert told(f"sudo {off}") == ""


@follows((guide("service"), "Who may do what"))
def test_members_of_the_group_are_added(printed: list[str]) -> None:
    (add,) = printed
    told(add)
    assert "nodectl" in told("id -Gn alice").split()
    service.run("gpasswd", "--delete", "alice", "nodectl")


@follows((guide("service"), "What was used, and by whom"))
def test_use_is_told(printed: list[str]) -> None:
    account, report, topo = printed
    number = job()
    assert str(number) in told(f"sudo {account}")
    assert "alice" in told(f"sudo {report}")
    assert "socket" in told(topo)


@follows((guide("lab"), "Install it and answer six questions"))
def test_a_labs_machine_is_configured(printed: list[str]) -> None:
    configure, restart, doctor = printed
    assert f"{service.CONFIG} is written" in told(configure)
    (old,) = service.CONFIG.parent.glob("nodectl.toml.2*")
    old.unlink()
    told(restart)
    assert told(doctor).splitlines()[-1].endswith(" 0 fail")
    assert json.loads(told("nodectl config --json"))["max_jobs_per_user"] == 20


@follows((guide("lab"), "Keep logins in a corner"))
def test_a_labs_logins_are_fenced(printed: list[str]) -> None:
    restart, on, shown = printed
    told(restart)
    told(on)
    try:
        assert "user.slice" in told(shown)
    finally:
        told("sudo nodectl fence off")


@big_machine(guide("lab"), "Who is in the way")
def who_is_in_the_way(printed: list[str]) -> None:
    queue, explain, topo, report = printed
    step = Sleeper("alice", 0, "--exclusive")
    waiting = int(told("nodectl submit --exclusive --wrap true").split()[-1])
    assert all(str(number) in told(queue) for number in (step.job, waiting))
    assert str(step.job) in told(of_job(explain, waiting))
    assert "alice" in told(topo)
    told(f"nodectl cancel {waiting}")
    assert step.let_go()[0] == 0
    assert "alice" in told(report)


@big_machine(guide("lab"), "A course on Monday")
def a_course(printed: list[str]) -> None:
    make, shown, delete = printed
    assert told(make) == "course\n"
    assert "course" in told(shown)
    told(delete)
    assert "course" not in told(shown)


@follows((guide("lab"), "Share the work of an administrator"))
def test_a_lab_has_another_administrator(printed: list[str]) -> None:
    add, reload = printed
    told(add)
    try:
        told(reload)
        told("nodectl node drain a new disk && nodectl node resume", user="alice")
    finally:
        service.run("gpasswd", "--delete", "alice", "nodectl")


@follows((guide("layout"), "Layout and binding"))
def test_layouts_are_computed(printed: list[str]) -> None:
    here, elsewhere, epyc, nodes = printed
    (PLACE / "epyc.json").write_text(service.run("lscpu", "-J", "-e=CPU,NODE,SOCKET,CORE,CACHE").stdout)
    assert all(told(command) for command in (here, elsewhere, nodes))
    done = typed(epyc)
    assert "error" in json.loads(done.stdout) or done.returncode == 0, done


@follows((guide("metrics-and-logs"), "Metrics"))
def test_metrics(printed: list[str]) -> None:
    once, file, listen = printed
    assert "nodectl_up 1.0" in told(once)
    prom = Path("/var/lib/prometheus/node-exporter/nodectl.prom")
    prom.parent.mkdir(parents=True, exist_ok=True)
    told(file)
    assert "nodectl_up 1.0" in prom.read_text()
    shutil.rmtree("/var/lib/prometheus")
    server = subprocess.Popen(listen.removeprefix("sudo ").split())
    service.wait_until(Path("/run/nodectl-metrics.sock").exists, "it listens")
    server.terminate()
    server.wait()


@follows((guide("metrics-and-logs"), "The log"))
def test_the_log(printed: list[str]) -> None:
    everything, of_one, of_step, of_user, follow = printed
    step = job()
    service.record(step)
    assert "step" in told(everything)
    assert f"{step}" in told(of_job(of_one, step))
    assert f"NODECTL_STEP={step}.0" in told(of_job(of_step, step))
    alice = told("id -u").strip()
    assert "step" in told(of_user.replace("1000", alice))
    told("printf 'MESSAGE=said to be drained\\nNODECTL_MESSAGE=node-drained\\n' | logger --journald")
    said = subprocess.Popen(follow.removeprefix("sudo ").split(), stdout=subprocess.PIPE, text=True)
    assert said.stdout is not None
    assert "drain" in said.stdout.readline()
    said.kill()
    said.communicate()


@follows((guide("without-root"), "Without root"))
def test_a_node_of_ones_own(printed: list[str]) -> None:
    run, doctor, daemon, submit, queue = printed
    write("job.sh", "#!/bin/sh\n#SBATCH --hold\n")
    assert told(run) == ""
    assert " 0 fail" in told(doctor)
    ready = "until nodectl --user queue >/dev/null 2>&1; do sleep 0.1; done"
    said = typed("\n".join((daemon, ready, submit, queue, "nodectl --user cancel --me; kill $!; wait")))
    assert "job.sh" in said.stdout, said
