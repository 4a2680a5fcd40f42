"""Around a job: the hooks job_prolog and job_epilog, the scripts Prolog and Epilog, and what they see."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rootful.node import NOBODY, wait_until
from rootful.stage import Stage, finished, staged

PROLOG, EPILOG = "slurm_spank_job_prolog", "slurm_spank_job_epilog"
NOTE = 'open(SCRATCH + "/log", "a").write({!r} + "\\n")'
WRITE_ENVIRONMENT = 'open(SCRATCH + "/{}", "wb").write(open("/proc/self/environ", "rb").read())'
ALWAYS = {
    "LANG", "PATH", "SLURMD_NODENAME", "SLURM_CLUSTER_NAME", "SLURM_JOBID", "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_GID",
    "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_NTASKS", "SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION",
    "SLURM_JOB_RESTART_COUNT", "SLURM_JOB_START_TIME", "SLURM_JOB_UID", "SLURM_JOB_USER", "SLURM_JOB_WORK_DIR",
    "SLURM_NODELIST", "SLURM_SCRIPT_CONTEXT", "SLURM_UID",
}  # fmt: skip
AT_THE_END = {"SLURM_JOB_DERIVED_EC", "SLURM_JOB_EXIT_CODE", "SLURM_JOB_EXIT_CODE2"}


@pytest.fixture(scope="module")
def module_stage() -> Iterator[Stage]:
    with staged(jobs=True) as started:
        yield started


@pytest.fixture
def stage(module_stage: Stage) -> Iterator[Stage]:
    module_stage.reset()
    log = module_stage.node.scratch / "log"
    log.touch()
    log.chmod(0o666)
    yield module_stage
    module_stage.node.assert_clean()


def over(stage: Stage) -> Mapping[str, object]:
    """The record of the job that was started last, when its epilog is over."""
    record: Mapping[str, object] = stage.node.call("Wait", job=stage.last_job(), step=0, epilog=True)["record"]  # type: ignore[assignment]
    return record


def logged(stage: Stage) -> list[str]:
    return (stage.node.scratch / "log").read_text(encoding="utf-8").split()


def take_notes(stage: Stage) -> None:
    """Every process of a job writes down that it was there."""
    for name in (
        "first.slurm_spank_init",
        f"first.{PROLOG}",
        f"second.{PROLOG}",
        f"first.{EPILOG}",
        f"second.{EPILOG}",
    ):
        stage.order(name, NOTE.format(name.replace("slurm_spank_", "")))
    stage.order("first.slurm_spank_exit", NOTE.format("first.exit"))
    for name in ("prolog", "epilog"):
        stage.order(name, f"echo {name} >>$SCRATCH/log")


def environment(path: Path) -> dict[str, str]:
    pairs = path.read_bytes().rstrip(b"\0").split(b"\0")
    return dict(os.fsdecode(pair).split("=", 1) for pair in pairs)


def test_job_is_around_its_step_and_scripts_are_around_neither_hook(stage: Stage) -> None:
    take_notes(stage)
    done = stage.node.run("sh", "-c", "echo task >>log", user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")
    assert over(stage)["state"] == "COMPLETED"
    before = ["first.job_prolog", "second.job_prolog", "prolog"]
    after = ["first.job_epilog", "second.job_epilog", "epilog"]
    assert logged(stage) == [*before, "first.init", "task", "first.exit", *after]


@pytest.mark.parametrize("name", [f"first.{EPILOG}", "epilog"])
def test_client_does_not_wait_for_the_epilog(stage: Stage, name: str) -> None:
    if name == "epilog":
        stage.order(name, ": >$SCRATCH/there; while ! [ -e $SCRATCH/release ]; do sleep 0.01; done; exit 3")
    else:
        stage.block(name)
    done = stage.node.run("sh", "-c", "exit 7", user=NOBODY)
    assert done.returncode == 7
    wait_until((stage.node.scratch / "there").exists, "the epilog runs")
    record = stage.last()
    assert (record["exit_status"], "epilog" in record) == (7, False)
    assert stage.node.call("List")["steps"] == []
    stage.release()
    assert over(stage) == stage.last()
    assert ("epilog" in stage.last()) == (name == "epilog")


def test_hook_has_its_context_its_items_and_the_options_that_were_given(stage: Stage) -> None:
    code = """
def item(number):
    try:
        return spank_get_item(sp, number)
    except SpankError as error:
        return -error.code
import json
option = SpankOption("second", "WORD", "for a test", 1, 0, None)
facts = [spank_context(), spank_remote(sp), [item(number) for number in range(32)], os.getpid() == os.getsid(0)]
facts.append(spank_option_getopt(sp, option))
json.dump(facts, open(SCRATCH + "/NAME", "w"))
"""
    stage.order(f"second.{PROLOG}", code.replace("NAME", "before"))
    stage.order(f"second.{EPILOG}", code.replace("NAME", "after"))
    done = stage.node.run("--second=a word", "true", user=NOBODY)
    assert done.returncode == 0, done.stderr
    over(stage)
    items: list[object] = [-3009] * 32
    items[:3] = [NOBODY.pw_uid, NOBODY.pw_gid, stage.last_job()]
    items[20:24] = ["22.05.8", "22", "05", "8"]
    for name in ("before", "after"):
        found = json.loads((stage.node.scratch / name).read_text(encoding="utf-8"))
        assert found == [5, 0, items, True, "a word"]


def test_environment_is_a_fixed_list_and_what_plugins_set(stage: Stage) -> None:
    setting = "\n".join(
        f"spank_job_control_setenv(sp, {name!r}, {value!r}, 1)"
        for name, value in {"PATH": "/evil", "SPANK_ALREADY": "a=b\nc", "LD_PRELOAD": "", "BASH_ENV": "/x"}.items()
    )
    stage.order("first.local.slurm_spank_local_user_init", setting)
    for call, name in ((PROLOG, "prolog"), (EPILOG, "epilog")):
        stage.order(f"first.{call}", WRITE_ENVIRONMENT.format(f"hook.{name}"))
        stage.order(name, f"cat /proc/self/environ >$SCRATCH/script.{name}")
    smuggled = {
        "LD_LIBRARY_PATH": "/evil",
        "BASH_ENV": "/evil",
        "SPANK_MINE": "1",
        "SLURM_JOB_USER": "root",
        "PATH": "/x",
    }
    done = stage.node.run("-n2", "--time=5", "--first=x", "/bin/sh", "-c", "exit 3", user=NOBODY, env=smuggled)
    assert done.returncode == 3, done.stderr
    over(stage)
    ours = {
        "SPANK_PATH": "/evil", "SPANK_ALREADY": "a=b\nc", "SPANK_LD_PRELOAD": "", "SPANK_BASH_ENV": "/x",
        "SPANK__SLURM_SPANK_OPTION_first_first": "x",
    }  # fmt: skip
    for name, more in (("prolog", set()), ("epilog", AT_THE_END)):
        script = environment(stage.node.scratch / f"script.{name}")
        assert {key: value for key, value in script.items() if key.startswith("SPANK_")} == ours
        shell = {"PWD", "SCRATCH", "SHLVL", "_", "OLDPWD"}
        assert set(script) - shell == ALWAYS | {"SLURM_JOB_END_TIME"} | more | set(ours)
        assert script["PATH"] == "/usr/sbin:/usr/bin:/sbin:/bin"
        assert script["SLURM_SCRIPT_CONTEXT"] == f"{name}_slurmd"
        assert script["SLURM_JOB_ID"] == script["SLURM_JOBID"] == str(stage.last_job())
        assert script["SLURM_JOB_UID"] == script["SLURM_UID"] == str(NOBODY.pw_uid)
        assert (script["SLURM_JOB_USER"], script["SLURM_JOB_NTASKS"]) == (NOBODY.pw_name, "2")
        assert script["SLURM_JOB_WORK_DIR"] == str(stage.node.scratch)
        hook = environment(stage.node.scratch / f"hook.{name}")
        assert hook == {key: value for key, value in script.items() if key not in shell}
    assert script["SLURM_JOB_EXIT_CODE2"] == "3:0"
    assert script["SLURM_JOB_EXIT_CODE"] == str(3 << 8)


def test_epilog_knows_the_signal_that_ended_the_step(stage: Stage) -> None:
    stage.order("epilog", "echo $SLURM_JOB_EXIT_CODE $SLURM_JOB_EXIT_CODE2 >$SCRATCH/log")
    assert stage.node.run("sh", "-c", "kill -KILL $$", user=NOBODY).returncode == 137
    over(stage)
    assert logged(stage) == ["9", "0:9"]


def test_processes_around_a_job_are_roots_with_their_own_session_and_cgroup(stage: Stage) -> None:
    tell = [
        "exec >$SCRATCH/log.$SLURM_SCRIPT_CONTEXT; id -u; umask; pwd; cut -d' ' -f1,5,6 /proc/$$/stat",
        "sed -n 's/^0:://p' /proc/$$/cgroup; readlink /proc/$$/fd/0; grep ^SigIgn /proc/$$/status",
    ]
    for name in ("prolog", "epilog"):
        stage.order(name, "; ".join(tell))
    assert stage.node.run("true", user=NOBODY).returncode == 0
    over(stage)
    for name in ("prolog", "epilog"):
        text = (stage.node.scratch / f"log.{name}_slurmd").read_text(encoding="utf-8")
        uid, umask, cwd, numbers, group, stdin, ignored = text.splitlines()
        assert (uid, umask, cwd, stdin) == ("0", "0022", "/", "/dev/null")
        assert len(set(numbers.split())) == 1  # pid, group, session
        assert group.endswith(f"/job_{stage.last_job()}/{name}")
        assert int(ignored.split()[1], 16) & (1 << 31) - 1 == 0


def test_what_a_prolog_leaves_behind_lives_no_longer_than_its_job(stage: Stage) -> None:
    stage.order(
        "prolog",
        "export SCRATCH; setsid sh -c 'echo $$ >$SCRATCH/log; exec sleep 1000' & "
        "until [ -s $SCRATCH/log ]; do sleep 0.01; done; sleep 1001 & :",
    )
    stage.order(f"first.{PROLOG}", "if os.fork() == 0:\n os.setsid(); time.sleep(1000)")
    stage.order("epilog", "setsid sleep 1002 & sleep 1003 & :")
    client = stage.node.popen("sh", "-c", ": >there; while ! [ -e release ]; do sleep 0.01; done", user=NOBODY)
    stage.wait_there(client)
    assert Path(f"/proc/{logged(stage)[0]}").exists()
    wait_until(lambda: [name for _, name in stage.node.processes()].count("sleep") == 2, "both sleepers are there")
    stage.release()
    assert finished(client)[0] == 0
    over(stage)
    stage.node.assert_clean()


def test_who_uses_none_of_it_pays_for_none_of_it(stage: Stage) -> None:
    stage.node.plugstack("")
    theirs = dict(stage.node.values)
    stage.node.configure(prolog="", epilog="", job_container_type="job_container/none")
    stage.node.restart()
    try:
        assert stage.node.run("true", user=NOBODY).returncode == 0
        assert {line["process"] for line in stage.node.trace(stage.last_job())} == {"daemon", "stepd", "task"}
        wait_until(lambda: not stage.node.leftovers(), "the step is in the history")
    finally:
        stage.node.configure(**theirs)
        stage.node.restart()


def test_plugin_file_that_cannot_be_read_to_an_end_does_not_stop_the_daemon(stage: Stage) -> None:
    os.mkfifo(stage.node.plugins / "spank" / "fifo.py")
    stage.node.plugstack("optional fifo\n")
    done = stage.node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
