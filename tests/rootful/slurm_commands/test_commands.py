"""What the commands print, take and refuse; and how they come into a directory and leave it."""

from __future__ import annotations

import json
import os
import pwd

import pytest

from rootful.jobs.machine import CPUS
from rootful.node import NOBODY, wait_until
from rootful.slurm_commands.conftest import Cluster

HOST = os.uname().nodename
COMMANDS = [
    "sacct",
    "salloc",
    "sattach",
    "sbatch",
    "sbcast",
    "scancel",
    "scontrol",
    "sinfo",
    "sprio",
    "squeue",
    "srun",
    "sstat",
]


def held(cluster: Cluster, *options: str) -> str:
    """A job that waits until it is released: its number."""
    return cluster.ok(f"sbatch --parsable -H -J held {' '.join(options)} --wrap 'exec sleep 1000'").strip()


def test_the_table_is_squeues(cluster: Cluster) -> None:
    job = held(cluster)
    header, line = cluster.ok("squeue").splitlines()
    assert header == "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    assert line == f"{job:>18} {'local':>9} {'held':>8} {'nobody':>8} PD       0:00      1 (JobHeldUser)"
    assert cluster.ok("squeue -h -O JobID:8,State:.9,UserName").rstrip() == f"{job:8}  PENDINGnobody"
    assert cluster.ok("SQUEUE_FORMAT='%A %T' squeue -h") == f"{job} PENDING\n"
    assert cluster.ok("squeue -h -u root") == cluster.ok("squeue -h -t R") == ""
    # A script asks for the partition that it gave to sbatch, which took it for the one that there is.
    assert cluster.ok("squeue -h -p gpu -o %i") == f"{job}\n"
    assert cluster.ok("sinfo -h -p gpu -o %D") == "1\n"
    assert cluster.ok(f"scancel -p gpu; squeue -h -j {job} -o %i") == f"{job}\n"
    (told,) = json.loads(cluster.ok("squeue --json"))["jobs"]
    assert (told["job_id"], told["job_state"], told["user_name"]) == (int(job), "PENDING", "nobody")


def test_tasks_of_an_array_are_one_line_or_many(cluster: Cluster) -> None:
    job = held(cluster, "--array=0-2")
    assert cluster.ok("squeue -h -o %i") == f"{job}_[0-2]\n"
    assert cluster.ok("squeue -h -r -o '%i %K'").splitlines() == [f"{job}_{index} {index}" for index in range(3)]
    cluster.ok(f"scancel {job}_1")
    wait_until(lambda: cluster.ok("squeue -h -o %i") == f"{job}_[0,2]\n", "one is gone")
    cluster.ok(f"scancel {job}_[0-2]")
    cluster.until_over()


def test_jobs_are_shown_held_changed_and_released(cluster: Cluster) -> None:
    cluster.ok("sbatch --parsable --exclusive --wrap 'exec sleep 1000'")
    job = held(cluster, "-t", "10")
    shown = cluster.ok(f"scontrol show job {job}")
    assert f"JobId={job} JobName=held\n   UserId=nobody({NOBODY.pw_uid})" in shown
    assert "TimeLimit=00:10:00" in shown
    assert len(cluster.ok(f"scontrol -o show job {job}").splitlines()) == 1
    cluster.ok(f"scontrol update JobId={job} TimeLimit=5 Name=other")
    cluster.ok(f"scontrol update job {job} Comment=later")
    cluster.ok(f"scontrol release {job}")
    assert cluster.ok(f"squeue -h -j {job} -o '%j %l %k %r'").split()[:3] == ["other", "5:00", "later"]
    cluster.ok(f"scontrol hold {job}")
    assert "Reason=JobHeldUser" in cluster.ok(f"scontrol show jobid={job}")


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("scancel", "scancel: error: No job identification provided"),
        ("scancel -p local -u ''", "scancel: error: Invalid user: nothing is given"),
        ("SCANCEL_NAME= scancel --me", "scancel: error: Invalid name: nothing is given"),
        ("scancel 7x", "scancel: error: Invalid job id: 7x"),
        ("squeue -j 999999", "squeue: error: Invalid job id specified: 999999"),
        ("squeue -u no_such_user", "squeue: error: Invalid user: no_such_user"),
        ("squeue --wrong", "squeue: unrecognized option '--wrong'"),
        ("scontrol show job 999999", "scontrol: error: slurm_load_jobs error: Invalid job id specified"),
        ("scontrol show node nowhere", "scontrol: error: Node nowhere not found"),
        ("scontrol show partition nowhere", "scontrol: error: Partition nowhere not found"),
        ("scontrol hold 999999", "scontrol: error: Invalid job id specified for job 999999"),
        ("scontrol dance", "scontrol: error: invalid keyword: dance"),
        (f"scontrol update NodeName={HOST} State=DOWN", "scontrol: error: Invalid node state specified: down"),
        ("scontrol update NodeName=elsewhere State=DRAIN Reason=x", "scontrol: error: Invalid node name elsewhere"),
        ("scontrol update JobId=", "scontrol: error: too few arguments for keyword:update"),
        ("scontrol create PartitionName=x", "scontrol: error: only reservations are created"),
        (
            "scontrol create reservation Duration=5",
            "scontrol: error: a reservation is for users: name them",
        ),
        ("scontrol create reservation Users=nobody", "scontrol: error: a reservation has an end: give EndTime= or Dur"),
        ("scontrol create reservation Accounts=a", "scontrol: error: Accounts of a reservation is not supported"),
        ("scontrol create reservation Nodes=elsewhere", "scontrol: error: Invalid node name elsewhere"),
        ("scontrol create reservation Flags=MAINT", "scontrol: error: Flags: maint is not supported"),
        ("scontrol create reservation NodeCnt=2", "scontrol: error: NodeCnt: there is one node"),
        ("scontrol create reservation StartTime=x", "scontrol: error: StartTime: Invalid time specification 'x'"),
        ("scontrol update PartitionName=x State=DOWN", "scontrol: error: Update of PartitionName"),
        ("squeue -w elsewhere", "squeue: error: Invalid node name elsewhere"),
        ("sinfo -o %!", "sinfo: error: Format option '%!' invalid"),
        ("sacct -o Nonsense", "sacct: error: no field 'Nonsense'"),
        ("sbatch /no/such/script", "sbatch: error: Unable to open file /no/such/script"),
        ("sbcast a b", "sbcast: error: Command only valid from within SLURM job"),
    ],
)
def test_a_wrong_request_is_refused_with_one(cluster: Cluster, typed: str, told: str) -> None:
    done = cluster.sh(typed)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(told)


def test_a_job_that_never_was_needs_no_end(cluster: Cluster) -> None:
    done = cluster.sh("scancel 999999")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    told = cluster.sh("scancel -v 999999").stderr
    assert "scancel: error: Kill job error on job id 999999: Invalid job id specified" in told


def test_a_client_gives_back_the_fields_that_are_listed(cluster: Cluster) -> None:
    job = held(cluster)
    assert cluster.ok(f"sacct -nPX -j {job} -o \"$(sacct --helpformat | xargs | tr ' ' ,)\"").count("\n") == 1


def test_a_column_may_have_a_hyphen_in_its_name(cluster: Cluster) -> None:
    held(cluster, "-n1")
    assert cluster.ok("squeue -h -O tres-per-node:20,cpus-per-task:.6").split() == ["N/A", "1"]


def test_an_account_is_told_with_its_jobs_and_chooses_them(cluster: Cluster) -> None:
    job, other = held(cluster), held(cluster, "--account=Physics")
    third = cluster.ok("SBATCH_ACCOUNT=chem sbatch --parsable --wrap 'echo of $SLURM_JOB_ACCOUNT'").strip()
    ran = cluster.ok("SLURM_ACCOUNT=MATHS srun sh -c 'echo $SLURM_JOB_ID $SLURM_JOB_ACCOUNT'").split()
    assert ran[1] == "maths"
    wait_until(lambda: cluster.ok("squeue -h -o %i") == f"{job}\n{other}\n", "the others are over")
    assert cluster.text(f"slurm-{third}.out") == "of chem\n"
    assert cluster.ok("squeue -h -A physics -o '%i %a'") == f"{other} physics\n"
    every = [line.split() for line in cluster.ok("scontrol -o show job 0").splitlines()]
    shown = {words[0]: word for words in every for word in words if word.startswith("Account=")}
    assert [shown[f"JobId={number}"] for number in (job, other, third, ran[0])] == [
        "Account=(null)", "Account=physics", "Account=chem", "Account=maths"
    ]  # fmt: skip
    told = cluster.ok(f"sacct -nP -X -o jobid,account -j {other},{third},{ran[0]}").split()
    assert set(told) == {f"{other}|physics", f"{third}|chem", f"{ran[0]}|maths"}
    assert cluster.ok(f"sacct -nP -X -o jobid -A Chem,physics -j {other},{third},{ran[0]}").split() == [other, third]
    cluster.ok("scancel -A chem")
    cluster.ok("scancel --wckey=x --me")
    assert cluster.ok("squeue -h -o %i") == f"{job}\n{other}\n"
    cluster.ok("scancel -A PHYSICS")
    assert cluster.ok("squeue -h -o %i") == f"{job}\n"


def test_what_has_no_meaning_here_is_told_only_to_who_asks(cluster: Cluster) -> None:
    assert cluster.sh("squeue -h -M all -L x").stderr == ""
    assert cluster.sh("squeue -h -M all -v").stderr == "squeue: without meaning on one machine: --clusters\n"
    assert "verbose        = 1\n" in cluster.ok("squeue -v")


def test_who_asks_before_each_job_cancels_what_is_confirmed(cluster: Cluster) -> None:
    kept, gone = held(cluster), held(cluster)
    assert cluster.ok("yes n | scancel -i --me").count("[y/n]?") == 2
    assert f"job_id={gone} name=held partition=local" in cluster.ok(f"echo y | scancel -i {gone}")
    wait_until(lambda: cluster.ok("squeue -h -o %i") == f"{kept}\n", "one is gone")
    done = cluster.sh(f"scancel -i {gone}")
    assert "Job/step already completing or completed" in done.stderr
    assert "No active jobs match ALL job filters" in cluster.sh("scancel -v --name=none").stderr


@pytest.mark.parametrize("way", ["scancel -p local {}", "yes | scancel -i {}"])
def test_who_names_tasks_of_an_array_cancels_no_others(cluster: Cluster, way: str) -> None:
    array = held(cluster, "--array=0-9")
    cluster.ok(way.format(f"{array}_[3-4,9]"))
    wait_until(lambda: cluster.ok("squeue -h -o %K") == "0-2,5-8\n", "they are gone")
    cluster.ok(f"scancel {array}")


def test_a_name_that_would_write_on_the_terminal_of_who_cancels_is_escaped(cluster: Cluster) -> None:
    held(cluster, "-J", "$'evil\\e[2J'")
    asked = cluster.ok("yes | scancel -i --me")
    assert "evil\\x1b[2J" in asked
    assert "\x1b" not in asked


def test_a_priority_is_the_sum_of_what_it_is_made_of(cluster: Cluster) -> None:
    cluster.ok("sbatch --exclusive --wrap 'exec sleep 1000'")
    held(cluster)  # stands in no line
    nice, plain = (
        cluster.ok(f"sbatch --parsable {word} --wrap true").strip() for word in ("--exclusive --nice=70", "--exclusive")
    )
    header, first, second = (line.split() for line in cluster.ok("sprio").splitlines())
    assert header == ["JOBID", "PARTITION", "PRIORITY", "SITE", "AGE", "FAIRSHARE", "JOBSIZE", "QOS"]
    assert [first[:2], second[:2]] == [[nice, "local"], [plain, "local"]]
    assert abs(sum(map(int, second[3:])) - int(second[2])) <= 2  # each is rounded
    long = cluster.ok("sprio -lh -S -i -u nobody").splitlines()
    assert [line.split()[0] for line in long] == [plain, nice]
    points = dict(zip(("Y", "A", "F", "N"), cluster.ok(f"sprio -h -j {nice} -o '%Y %A %F %N'").split(), strict=True))
    assert points["N"] == "70"
    weights = cluster.ok("sprio -w -o '%i %A %F %J %Q' -h").split()
    assert weights == ["Weights", "1000", "10000", "0", "10000"]
    assert float(cluster.ok(f"sprio -n -h -j {plain} -o %f")) <= 1
    assert cluster.sh("sprio -o %x").stderr == "sprio: error: Invalid format specification: x\n"


def test_a_reservation_is_made_shown_used_and_deleted(cluster: Cluster) -> None:
    root = pwd.getpwuid(0)
    refused = cluster.sh("scontrol create reservation Users=nobody Duration=10")
    assert (refused.returncode, refused.stdout) == (1, "")
    words = "ReservationName=course StartTime=2031-05-01T09:00 Duration=1:30:00 Users=nobody,root Nodes=ALL CoreCnt=1"
    assert cluster.ok(f"scontrol create {words} Flags=ANY_NODES", root) == "Reservation created: course\n"
    (shown,) = cluster.ok("scontrol -o show reservation course").splitlines()
    facts = (
        "ReservationName=course StartTime=2031-05-01T09:00:00 EndTime=2031-05-01T10:30:00 Duration=01:30:00 CoreCnt=1"
    )
    assert {*facts.split(), "Users=nobody,root", "State=INACTIVE"} <= set(shown.split())
    _, line = cluster.ok("sinfo -T").splitlines()
    assert line.split() == ["course", "INACTIVE", "2031-05-01T09:00:00", "2031-05-01T10:30:00", "1:30:00", HOST]
    cluster.ok("scontrol delete reservationname=course", root)
    assert cluster.ok("scontrol show res") == cluster.ok("sinfo -T") == "No reservations in the system\n"
    made = cluster.ok("scontrol create reservation user=nobody starttime=now duration=10 nodes=" + HOST, root)
    name = made.removeprefix("Reservation created: ").strip()
    cluster.ok(f"srun --reservation={name} true && scontrol show res {name} | grep State=ACTIVE")
    cluster.ok(f"scontrol delete reservation {name}", root)


def test_jobs_that_have_ended_are_chosen_by_the_names_of_a_variable(cluster: Cluster) -> None:
    other, meant = held(cluster), held(cluster, "-J", "meant")
    cluster.ok(f"scancel {other} {meant}")
    cluster.until_over()
    names = cluster.ok("SQUEUE_NAMES=meant squeue -h -t all -o %j").split()
    assert set(names) == {"meant"}


def test_the_machine_is_one_node_of_one_partition(cluster: Cluster) -> None:
    assert cluster.ok("sinfo -h -o '%R %D %N %a'").split() == ["local", "1", HOST, "up"]
    assert cluster.ok("sinfo -h -N -o '%N|%t'") == f"{HOST}|idle\n"
    assert cluster.ok("sinfo").splitlines()[0] == "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST"
    assert f"NodeName={HOST} " in cluster.ok(f"scontrol show node {HOST}")
    assert "PartitionName=local" in cluster.ok("scontrol show partition")
    config = cluster.ok("scontrol show config").splitlines()
    assert {"SelectType              = select/cons_tres", "MULTIPLE_SLURMD         = Yes"} <= set(config)
    assert cluster.ok("scontrol ping") == f"Slurmctld(primary) at {HOST} is UP\n"


def test_scontrol_takes_lines_until_one_ends_it(cluster: Cluster) -> None:
    job = held(cluster)
    done = cluster.sh(f"printf 'ping\\n!!\\nshow job nonsense\\nshow -o job {job}\\nhelp\\nquit\\nping\\n' | scontrol")
    assert done.stdout.count("is UP") == 2
    assert "Valid <COMMAND> values are:" in done.stdout
    assert "Invalid job id: nonsense" in done.stderr


def test_scontrol_tells_which_processes_belong_to_a_job(cluster: Cluster) -> None:
    cluster.file("where.sh", "#!/bin/sh\nscontrol pidinfo $$\nscontrol listpids $SLURM_JOB_ID\nscontrol pidinfo 1\n")
    job = cluster.ok("sbatch -W --parsable -t 5 -o told -e wrong where.sh || true").strip()
    info, left, header, row = cluster.text("told").splitlines()
    assert info.startswith(f"Slurm JobId={job} ends at 20")
    assert 0 < int(left.removeprefix("Job remaining time is ")) <= 300
    assert header.split() == ["PID", "JOBID", "STEPID", "LOCALID", "GLOBALID"]
    assert row.split()[1:] == [job, "batch", "0", "0"]
    assert "process 1 is in no job" in cluster.text("wrong")


def test_sacct_has_its_own_columns_and_those_that_are_asked_for(cluster: Cluster) -> None:
    cluster.ok("srun -J short true")
    lines = cluster.ok("sacct -X --name=short").splitlines()
    assert lines[0].split() == ["JobID", "JobName", "Partition", "Account", "AllocCPUS", "State", "ExitCode"]
    assert lines[-1].split()[1] == "short"
    assert (
        cluster.ok("sacct -X -n -p --delimiter=, -o JobName%5,State --name=short").splitlines()[-1]
        == "short,COMPLETED,"
    )
    assert cluster.ok("sacct -X -n -S now -E now+1hour -s PD") == ""


def test_what_is_over_is_neither_held_nor_queued_again(cluster: Cluster) -> None:
    job = cluster.ok("sbatch -W --parsable --wrap true").strip()
    for verb in ("hold", "requeue", "release"):
        done = cluster.sh(f"scontrol {verb} {job}")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"scontrol: error: Job/step already completing or completed for job {job}\n"


def test_a_step_and_a_job_tell_their_limits(cluster: Cluster) -> None:
    job = cluster.ok("sbatch --parsable -n1 -t 10 --mem-per-cpu=20 --wrap 'srun -t 2 sleep 1000'").strip()
    wait_until(lambda: f"{job}.0\n" in cluster.ok(f"squeue -h -s -j {job} -o %i"), "the step runs")
    assert "TimeLimit=00:02:00" in cluster.ok(f"scontrol show step {job}.0")
    assert "TimeLimit=00:10:00" in cluster.ok(f"scontrol show job {job}")
    assert "MinMemoryCPU=20M" in cluster.ok(f"scontrol show job {job}")
    assert cluster.sh(f"scancel -v -s URG {job}").stderr == f"scancel: Signal 23 to job {job}\n"
    assert cluster.sh(f"scancel -b -v -s URG {job}").stderr == f"scancel: Signal 23 to batch job {job}\n"


def test_an_allocation_says_what_salloc_says(cluster: Cluster) -> None:
    done = cluster.sh("salloc -n1 /no/such/program")
    assert 'salloc: error: Unable to exec command "/no/such/program": ' in done.stderr
    assert cluster.ok("salloc -O -n3 sh -c 'echo $SLURM_OVERCOMMIT $SLURM_NPROCS'") == "1 3\n"
    told = cluster.ok("salloc --exclusive sh -c 'echo ${SLURM_NTASKS-none}; srun -c1 echo task; srun echo alone'")
    assert told.split() == ["none", *["task"] * CPUS, "alone"]
    job = held(cluster)
    cluster.ok(
        f"salloc -d afterany:{job} true 2>told & until grep -q queued told; do sleep 0.1; done; scancel {job}; wait $!"
    )
    first, second = cluster.text("told").splitlines()[:2]
    number = first.removeprefix("salloc: Pending job allocation ")
    assert second.startswith(f"salloc: job {number} queued and waiting for resources")


def test_sstat_tells_of_running_steps(cluster: Cluster) -> None:
    job = cluster.ok("sbatch --parsable -n1 --wrap 'srun sleep 1000'").strip()
    wait_until(lambda: f"{job}.0\n" in cluster.ok(f"squeue -h -s -j {job} -o %i"), "the step runs")
    assert cluster.ok(f"sstat -n -P -o JobID,NTasks -j {job}") == f"{job}.0|1\n"
    assert cluster.ok(f"sstat -a -n -P -o JobID {job}").split() == [f"{job}.batch", f"{job}.0"]
    cluster.ok(f"scancel {job}.0")
    cluster.until_over()
    assert cluster.sh(f"sstat -j {job}").returncode == 1


def test_scancel_ends_a_step_of_a_task_of_an_array(cluster: Cluster) -> None:
    job = cluster.ok("sbatch --parsable -n1 --array=3 --wrap 'srun sleep 1000; exec sleep 1000'").strip()
    wait_until(lambda: _runs_step(cluster, job), "the step runs")
    cluster.ok(f"scancel {job}_3.0")
    wait_until(lambda: not _runs_step(cluster, job), "the step has ended")
    assert cluster.ok("squeue -h -o '%i %T'") == f"{job}_3 RUNNING\n"
    refused = cluster.sh(f"scancel {job}_3.x")
    assert (refused.returncode, refused.stderr) == (1, f"scancel: error: Invalid job id {job}_3.x\n")
    cluster.ok(f"scancel {job}_3.batch")
    cluster.until_over()


def _runs_step(cluster: Cluster, job: str) -> bool:
    return f"{job}.0\n" in cluster.ok(f"squeue -h -s -j {job} -o %i")


def test_a_file_is_sent_into_the_job_that_it_is_typed_in(cluster: Cluster) -> None:
    target = cluster.node.scratch / "sent"
    cluster.ok(f"salloc -n1 sh -c 'echo all of it >file; sbcast -f file {target}; srun cat {target}'")
    assert target.read_text(encoding="utf-8") == "all of it\n"


def test_who_attaches_sees_what_a_step_writes(cluster: Cluster) -> None:
    there = cluster.node.scratch / "there"
    command = f"srun -l sh -c 'echo first; echo x >{there}; while [ -e {there} ]; do sleep 0.1; done; echo last'"
    job = cluster.ok(f'sbatch --parsable -n1 --wrap "{command}"').strip()
    wait_until(lambda: there.exists() and there.read_text(encoding="utf-8") == "x\n", "the step writes")
    assert f"{HOST}" in cluster.ok(f"sattach --layout {job}.0")
    cluster.ok(f"sattach {job}.0 >seen & until grep -q first seen; do sleep 0.1; done; rm {there}; wait $!")
    assert cluster.text("seen").splitlines()[-1].endswith("last")
    assert cluster.sh("sattach").returncode == 1
    assert cluster.sh("sattach 999999.0").returncode == 1


def test_they_come_and_go_and_touch_nothing_else(cluster: Cluster) -> None:
    directory = cluster.node.dir / "elsewhere"
    node = cluster.node
    assert node.nodectl("slurm-commands", str(directory)).returncode == 0
    assert sorted(os.listdir(directory)) == list(COMMANDS)
    foreign = directory / "squeue"
    foreign.write_text("#!/bin/sh\n", encoding="utf-8")
    done = node.nodectl("slurm-commands", str(directory))
    assert done.returncode == 1
    assert "squeue: not written by this command" in done.stderr
    assert foreign.read_text(encoding="utf-8") == "#!/bin/sh\n"
    assert "removed" in node.nodectl("slurm-commands", "--remove", str(directory)).stdout
    assert os.listdir(directory) == ["squeue"]
    assert node.nodectl("slurm-commands", "--force", str(directory)).returncode == 0
    assert foreign.read_text(encoding="utf-8") != "#!/bin/sh\n"
    assert {
        row["name"] for row in json.loads(node.nodectl("slurm-commands", "--list", "--json").stdout)["commands"]
    } == {*COMMANDS}


def test_root_neither_writes_nor_removes_them_where_a_stranger_leads(cluster: Cluster) -> None:
    node = cluster.node
    mine, empty, link = node.dir / "mine", node.dir / "empty", node.scratch / "link"
    empty.mkdir()
    assert node.nodectl("slurm-commands", str(mine)).returncode == 0
    for words, leads_to in ((["--force"], empty), (["--remove"], mine)):
        cluster.ok(f"ln -s {leads_to} {link}")
        before = os.listdir(leads_to)
        for path in (str(link), f"{link}/further"):
            done = node.nodectl("slurm-commands", *words, path)
            assert done.returncode == 1, done.stdout
            assert f"{link} is in another user's hands" in done.stderr
        assert os.listdir(leads_to) == before
        link.unlink()
