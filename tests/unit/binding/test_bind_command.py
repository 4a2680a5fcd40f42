"""`nodectl bind`: what it prints, for whom, and how it refuses; by any user, without a service."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.cpu_list import mask_of_list
from nodectl.placement.machine.topology import read

BOOT = f"import sys; sys.path[:0] = [{sysconfig.get_paths()['purelib']!r}]; "
BOOT += "from nodectl.cli.main import main; sys.exit(main())"
SPEC = "--machine=2s:4c:2t:2n"
LSCPU = {
    "cpus": [
        {"cpu": cpu, "node": cpu // 4 % 2, "socket": cpu // 4 % 2, "core": cpu % 8, "l1d:l1i:l2:l3": f"{cpu}:{cpu}:0:0"}
        for cpu in range(16)
    ]
}  # threads of a core are 0,8: as most servers number them


def ran(*words: str, env: Mapping[str, str] | None = None, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-IS", "-c", BOOT, *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", **(env or {})},
        **how,
    )


def answer(*words: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    done = ran("bind", "--json", *words, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(*words: str) -> tuple[int, dict[str, Any]]:
    done = ran("bind", *words, "--json")
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def cpus(found: Mapping[str, Any]) -> list[str]:
    return [task["cpus"] for task in found["tasks"]]


def test_the_object_has_the_fields_that_are_promised() -> None:
    found = answer(SPEC, "--allocated=0-15", "-n2", "--cpu-bind=cores")
    assert list(found) == ["tasks", "allocated", "env", "rule", "error"]
    assert found["tasks"] == [{"task": 0, "cpus": "0-1", "mems": "0-1"}, {"task": 1, "cpus": "8-9", "mems": "0-1"}]
    assert (found["allocated"], found["error"]) == ("0-15", None)
    assert found["env"]["SLURM_CPU_BIND"] == "quiet,mask_cpu:0x0003,0x0300"
    assert "cores" in found["rule"]


def test_a_step_without_a_job_makes_its_own_where_nobody_else_is() -> None:
    assert answer(SPEC, "-n2")["allocated"] == "0-1"
    found = answer(SPEC, "-n2", "--busy", "0-3,8-9")
    assert (found["allocated"], cpus(found)) == ("4-5", ["4", "5"])


def test_any_machine_can_be_tried_from_lscpus_table(tmp_path: Path) -> None:
    table = tmp_path / "machine.json"
    table.write_text(json.dumps(LSCPU))
    found = answer("--machine", str(table), "--allocated", "0-15", "-n4", "--cpu-bind=cores")
    assert cpus(found) == ["0,8", "4,12", "1,9", "5,13"]


def test_nodes_is_how_many_machines_and_n_is_sruns() -> None:
    found = answer(SPEC, "--nodes", "4", "--allocated=0-15", "-N2", "-n3", "--cpu-bind=cores")
    assert [task["node"] for task in found["tasks"]] == ["n1", "n1", "n2"]
    assert cpus(found) == ["0-1", "8-9", "0-1"]
    status, told = refused(SPEC, "--nodes=2", "--allocated=0-15", "-N3", "-n3")
    assert (status, told["error"]) == (1, "Only allocated 2 nodes asked for 3")


def test_each_machine_may_hold_cpus_of_its_own() -> None:
    found = answer(SPEC, "--nodes=2", "--allocated=0-1;8-11", "-n2", "-N2")
    assert (found["allocated"], cpus(found)) == ("0-1;8-11", ["0-1", "8-11"])


def test_explain_tells_why_for_people_and_programs() -> None:
    words = ("bind", SPEC, "--allocated=0-15", "-n2", "--cpu-bind=cores", "--explain")
    lines = ran(*words).stdout.splitlines()
    assert lines[0] == "allocated CPUs: 0-15"
    assert any(line.split()[:3] == ["1", "8-9", "0-1"] and "bound to cores" in line for line in lines)
    assert "SLURM_CPU_BIND_TYPE=mask_cpu:" in lines
    assert all("bound to cores" in task["why"] for task in answer(*words[1:])["tasks"])


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ((SPEC, "-n99"), 1, "Requested node configuration is not available"),
        ((SPEC, "--allocated=0-15", "-n2", "--cpu-bind=map_cpu:0,16"), 1, "allocated CPUs are: 0xFFFF"),
        ((SPEC, "--allocated=0-15", "-n17"), 1, "More processors requested than permitted"),
        ((SPEC, "--allocated=16"), 1, "--allocated: CPU 16 is not on this machine"),
        ((SPEC, "--allocated=x"), 1, "'x' is not a number or a range"),
        ((SPEC, "--allocated="), 1, "--allocated: no CPU"),
        ((SPEC, "--allocated=0;1;2", "--nodes=2"), 1, "--allocated: 3 lists for 2 machines"),
        ((SPEC, "--nodes=0"), 1, "Invalid number of machines"),
        ((SPEC, "--nodes=0000000014097"), 1, "Invalid number of machines"),
        ((SPEC, "--hint=more"), 1, "more"),
        (("--machine=2x4",), 1, "machine '2x4'"),
        (("--machine=/nowhere.json",), 1, "/nowhere.json: No such file or directory"),
        (("--machine=/dev/null",), 1, "lscpu's table: not JSON"),
        (("--bogus",), 255, "unrecognized option '--bogus'"),
        (("-n",), 255, "option requires an argument -- 'n'"),
        (("-n0",), 1, 'Invalid numeric value "0"'),
    ],
)
def test_a_refusal_is_a_status_with_its_reason(words: tuple[str, ...], status: int, reason: str) -> None:
    # "--json" last: an option that wants an argument must not take it.
    done = ran("bind", "--json", *words)
    found = json.loads(done.stdout)
    assert (done.returncode, found["tasks"], found["env"]) == (status, [], {})
    assert reason in found["error"]
    told = ran("bind", *words)
    assert (told.returncode, told.stdout) == (status, "")
    assert told.stderr.startswith(f"nodectl: error: {found['error']}\n")


def test_options_that_say_nothing_of_layout_are_passed_over() -> None:
    words = ("--mem=100", "-p", "long", "-k", "-Q", "-t5", "-l", "--export=ALL", "--mpi=none", "--", "prog", "-n9")
    assert cpus(answer(SPEC, "-n2", *words)) == cpus(answer(SPEC, "-n2"))


def test_what_counts_by_gpu_or_has_another_name_says_something_of_layout() -> None:
    tres = answer(SPEC, "--tres-per-task=cpu:2", "-n2")
    assert cpus(tres) == cpus(answer(SPEC, "-c2", "-n2"))
    old = answer(SPEC, "--tasks-per-node=2", "--cpu_bind=cores", "-n2")
    assert cpus(old) == cpus(answer(SPEC, "--ntasks-per-node=2", "--cpu-bind=cores", "-n2"))


def test_sruns_variables_count_where_no_option_is_given() -> None:
    env = {"SLURM_NTASKS": "4", "SLURM_CPU_BIND": "cores"}
    assert cpus(answer(SPEC, "--allocated=0-15", env=env)) == ["0-1", "8-9", "2-3", "10-11"]
    assert cpus(answer(SPEC, "--allocated=0-15", "-n1", "--cpu-bind=threads", env=env)) == ["0"]


def test_the_configuration_decides_too(tmp_path: Path) -> None:
    config = tmp_path / "nodectl.toml"
    config.write_text(
        'select_type_parameters = "CR_Core_Memory,CR_CORE_DEFAULT_DIST_BLOCK"\n'
        'gres = ["Name=gpu File=/dev/null,/dev/zero Cores=4-7"]\n'
    )
    done = ran("--config", str(config), "bind", "--json", SPEC, "--allocated=0-15", "-n2", "--cpu-bind=cores")
    assert cpus(json.loads(done.stdout)) == ["0-1", "2-3"]
    done = ran("--config", str(config), "bind", "--json", SPEC, "--allocated=0-15", "-n2", "--gpus-per-task=1")
    found = json.loads(done.stdout)
    assert [(task["gpus"], task["cpus"]) for task in found["tasks"]] == [("0", "8-15"), ("1", "8-15")]
    assert (found["env"]["CUDA_VISIBLE_DEVICES"], found["env"]["SLURM_JOB_GPUS"]) == ("0", "0,1")


def test_a_run_holds_what_the_configured_plugin_gives_it_on_an_idle_machine(tmp_path: Path) -> None:
    machine = read(allowed=os.sched_getaffinity(0))
    config = tmp_path / "nodectl.toml"

    def allocated(text: str, *words: str) -> int:
        config.write_text(text)
        done = ran("--config", str(config), "bind", "--json", *words)
        assert done.returncode == 0, done.stdout
        return mask_of_list(json.loads(done.stdout)["allocated"])

    cores = 'select_type = "select/cons_tres"\n'
    assert allocated(cores, "-n1") in {core.mask & machine.usable for core in machine.cores}
    assert allocated(cores, "-n1", "--exclusive") == machine.usable
    assert allocated(cores, f"-n{machine.usable.bit_count() + 1}") == machine.usable
    assert allocated('select_type = "select/linear"\nover_subscribe = "force:9"\n', "-n1") == machine.usable


def test_devices_of_a_run_are_near_its_cores(tmp_path: Path) -> None:
    config = tmp_path / "nodectl.toml"
    config.write_text('select_type = "select/cons_tres"\ngres = ["Name=gpu File=/dev/null,/dev/zero"]\n')
    done = ran("--config", str(config), "bind", "--json", "-n1", "--gpus=2")
    found = json.loads(done.stdout)
    assert found["tasks"][0]["gpus"] == "0,1"
    done = ran("--config", str(config), "bind", "--json", "-n1", "--gpus=3")
    assert "Requested node configuration is not available" in json.loads(done.stdout)["error"]


def test_this_machine_needs_neither_root_nor_a_service() -> None:
    nobody = pwd.getpwnam("nobody")
    who: dict[str, Any] = (
        {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    )
    done = ran("bind", "--json", "-n1", "--cpu-bind=threads", cwd="/", **who)
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert int(found["tasks"][0]["cpus"]) in os.sched_getaffinity(0)


def test_a_fenced_login_is_told_the_layout_of_a_job_on_the_other_cpus(tmp_path: Path) -> None:
    """It has the CPUs that no job is given, and no others."""
    machine = read(allowed=os.sched_getaffinity(0))
    kept = set(machine.sockets[-1].cores[-1].cpus) & os.sched_getaffinity(0)
    if len(machine.cores) < 2 or not kept:
        pytest.skip("needs two cores")
    config = tmp_path / "nodectl.toml"
    config.write_text("core_spec_count = 1\n")
    done = ran(
        "--config", str(config), "bind", "-n1", "--cpu-bind=cores", "--json",
        preexec_fn=lambda: os.sched_setaffinity(0, kept),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert mask_of_list(json.loads(done.stdout)["tasks"][0]["cpus"]) & sum(1 << cpu for cpu in kept) == 0
