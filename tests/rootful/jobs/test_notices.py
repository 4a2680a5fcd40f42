"""People are told of their jobs: by mail, by a command of their own, by the administrator's; each event once."""

from __future__ import annotations

import email
import email.message
import os
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.launch.cgroup import tree
from rootful.node import NOBODY, OTHER, Node, wait_until
from rootful.queued import QUEUE, emptied, refused, state, submit, wait_for

# Each mail is a file; its name is made when it is whole.
SENDMAIL = """#!/bin/sh
new=$(mktemp {scratch}/.mail.XXXXXX)
{{ echo "X-Uid: $(id -u)"; echo "X-Arguments: $*"; cat; }} >$new
mv $new {scratch}/mail.${{new##*.}}
"""
# Of many mails only who they are, a line each.
COUNTER = "#!/bin/sh\nexec sed -n 's/^Message-ID: <\\(.*\\)@.*/\\1/p' >>{scratch}/mails\n"
TELL = 'echo "$NODECTL_EVENT $(id -u) $SLURM_JOB_ID" >>told'


# It takes the mail, and delivers it when it has ended itself.
BESIDE = """#!/bin/sh
new=$(mktemp {scratch}/.mail.XXXXXX)
cat >$new
me=$$
exec 2>/dev/null
(while read -r pid name state rest </proc/$me/stat && [ $state != Z ]; do sleep 0.1; done; mv $new {scratch}/mail.$me) &
"""


def program(node: Node, name: str, text: str) -> str:
    path = node.dir / name
    path.write_text(text.format(scratch=node.scratch), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def noting(sendmail: str = SENDMAIL, **config: object) -> Node:
    """A node that is not started, with a program in sendmail's place."""
    node = Node(**{**QUEUE, **config})
    node.configure(sendmail=program(node, "sendmail", sendmail))
    return node


@pytest.fixture(scope="module")
def module_node() -> Iterator[Node]:
    node = noting()
    try:
        yield node.start()
    finally:
        node.close()


@pytest.fixture
def mailing(module_node: Node) -> Iterator[Node]:
    yield module_node
    wait_until(lambda: not list((module_node.dir / "run/notices").iterdir()), "all is told")
    emptied(module_node)


@pytest.fixture
def counting() -> Iterator[Node]:
    node = noting(COUNTER)
    (node.scratch / "mails").touch()
    (node.scratch / "mails").chmod(0o666)  # no user's file is open to others in a directory for all
    try:
        yield node.start()
        node.assert_clean()
    finally:
        node.close()


def mails(node: Node) -> list[email.message.Message]:
    return [email.message_from_bytes(path.read_bytes()) for path in sorted(node.scratch.glob("mail.*"))]


def events(node: Node, count: int) -> list[str]:
    """The events of this many mails."""
    wait_until(lambda: len(mails(node)) >= count, f"{count} mails")
    return sorted(str(mail["X-Nodectl-Event"]) for mail in mails(node))


def told(node: Node, count: int) -> list[str]:
    """So many lines of a command of --notify."""
    path = node.scratch / "told"
    wait_until(lambda: path.exists() and len(path.read_text(encoding="utf-8").splitlines()) >= count, f"{count} told")
    return path.read_text(encoding="utf-8").splitlines()


def test_mails_of_begin_and_end_go_out_as_the_jobs_user(mailing: Node) -> None:
    job = submit(mailing, "#SBATCH --mail-type=ALL --mail-user=ann@example.org,bob\nexit 0", "-J", "train")
    assert events(mailing, 2) == ["BEGIN", "END"]
    for mail in mails(mailing):
        assert mail["X-Uid"] == str(NOBODY.pw_uid)
        assert mail["X-Arguments"] == "-i -- ann@example.org bob"
        assert mail["To"] == "ann@example.org, bob"
        assert mail["Message-ID"].startswith(f"<{job}.0.{mail['X-Nodectl-Event']}.")
    subjects = sorted(str(mail["Subject"]) for mail in mails(mailing))
    assert subjects == [f"job {job} (train) has begun", f"job {job} (train) has ended: COMPLETED"]


def test_a_job_that_fails_is_told_once_as_failed(mailing: Node) -> None:
    job = submit(mailing, "exit 3", "--mail-type=END,FAIL")
    wait_for(mailing, job, "FAILED")
    assert events(mailing, 1) == ["FAIL"]
    assert "exit status:  3" in mails(mailing)[0].get_payload()
    assert mails(mailing)[0]["To"] == "nobody"


def test_a_name_adds_no_header_and_no_line(mailing: Node) -> None:
    name = "a\nBcc: eve@example.org\r\n\r\n.\né" + "x" * 200
    submit(mailing, "exit 0", "--mail-type=END", "-J", name)
    assert events(mailing, 1) == ["END"]
    (mail,) = mails(mailing)
    assert mail["Bcc"] is None
    assert not [line for line in mail.as_string().split("\n") if line.startswith(("Bcc", "."))]


@pytest.mark.parametrize("address", ["-oQ/tmp", "a b", "a@-x", "a;b@c", "a@b\nBcc: c", "|sh", "a@b,,c"])
def test_what_is_no_address_is_refused(mailing: Node, address: str) -> None:
    assert "Invalid address" in refused(mailing, "#!/bin/sh\n", "--mail-type=END", f"--mail-user={address}")
    request = {"argv": ["x"], "cwd": "/", "ntasks": 1, "environment": {}}
    options = {"mail_type": "END", "mail_user": address}
    answer = mailing.call("Submit", request=request, job=options, script="#!/bin/sh\n")
    assert answer["error"] == "org.nodectl.InvalidRequest"


def test_an_array_is_told_as_a_whole(mailing: Node) -> None:
    """Its last task, which has the array's number, ends before another."""
    last = mailing.scratch / "last"
    script = f"""case $SLURM_ARRAY_TASK_ID in
    0) while [ ! -e {last} ]; do sleep 0.05; done;;
    1) exit 1;;
    esac"""
    array = submit(mailing, script, "--array=0-3", "--mail-type=ALL")
    wait_until(lambda: state(mailing, f"{array}_3") == "COMPLETED", "the last task has ended")
    last.touch()
    assert events(mailing, 2) == ["BEGIN", "FAIL"]
    assert any("1 FAILED, 3 COMPLETED" in str(mail["Subject"]) or "3 COMPLETED, 1 FAILED" in str(mail["Subject"])
               for mail in mails(mailing))  # fmt: skip


def test_a_job_that_is_queued_again_is_told_of_each_run(mailing: Node) -> None:
    job = submit(mailing, "[ $SLURM_RESTART_COUNT ] || sleep 1000", "--mail-type=ALL")
    wait_for(mailing, job, "RUNNING")
    assert events(mailing, 1) == ["BEGIN"]
    assert mailing.nodectl("requeue", str(job), user=NOBODY).returncode == 0
    assert events(mailing, 4) == ["BEGIN", "BEGIN", "END", "REQUEUE"]
    assert len({mail["Message-ID"] for mail in mails(mailing)}) == 4


def test_shares_of_a_time_limit_and_its_end_are_told(mailing: Node) -> None:
    submit(mailing, "sleep 1000", "--time=0:02", "--mail-type=TIME_LIMIT_50,TIME_LIMIT_80,TIME_LIMIT")
    assert events(mailing, 3) == ["TIME_LIMIT", "TIME_LIMIT_50", "TIME_LIMIT_80"]


def test_a_run_and_an_allocation_are_told_too(mailing: Node) -> None:
    assert mailing.run("--mail-type=END", "true", user=NOBODY).returncode == 0
    assert mailing.nodectl("alloc", "--mail-type=END", "true", user=NOBODY).returncode == 0
    assert events(mailing, 2) == ["END", "END"]


def test_a_command_runs_as_the_jobs_user_and_as_confined(mailing: Node) -> None:
    command = f"{TELL}; grep -e NoNewPrivs -e CapBnd /proc/self/status >>confined; cat /proc/self/cgroup >>cgroup"
    job = submit(mailing, "exit 0", f"--notify={command}", "--secure=strict")
    assert told(mailing, 2) == [f"{event} {NOBODY.pw_uid} {job}" for event in ("BEGIN", "END")]
    wait_until(lambda: len((mailing.scratch / "cgroup").read_text().splitlines()) >= 2, "both have ended")
    confined = (mailing.scratch / "confined").read_text(encoding="utf-8").split()
    assert set(confined) == {"NoNewPrivs:", "1", "CapBnd:", "0" * 16}
    assert f"notices/command-{NOBODY.pw_uid}" in (mailing.scratch / "cgroup").read_text(encoding="utf-8")


def test_a_command_has_no_more_than_one_cpu(mailing: Node) -> None:
    place, go = mailing.scratch / "place", mailing.scratch / "go"
    submit(
        mailing,
        "exit 0",
        f"--notify=sed -n s/^0:://p /proc/self/cgroup >place; while [ ! -e {go} ]; do sleep 0.1; done",
    )
    wait_until(lambda: place.exists() and place.read_text().endswith("\n"), "the command runs")
    group = tree.Group(tree.find_mount() + place.read_text().strip())
    found = Path(group.full_path, "cpu.max").read_text(encoding="ascii") if group.has("cpu.max") else None
    go.touch()
    assert found in (None, "100000 100000\n"), "None where the machine has no cpu controller"


def test_a_command_starts_no_job_that_is_less_confined(mailing: Node) -> None:
    start = shlex.join(mailing.command("run", "--secure=none", "id"))
    submit(mailing, "exit 0", f"--notify={start} >>answer 2>&1; {TELL}")
    assert len(told(mailing, 2)) == 2
    answers = (mailing.scratch / "answer").read_text(encoding="utf-8").splitlines()
    assert len([line for line in answers if "starts and changes nothing" in line]) == 2
    assert not [line for line in answers if "uid=" in line]


def test_a_sendmail_that_delivers_beside_its_caller_is_not_stopped() -> None:
    node = noting(BESIDE)
    try:
        node.start()
        submit(node, "exit 0", "--mail-type=BEGIN,END")
        assert events(node, 2) == ["BEGIN", "END"]
        node.assert_clean()
    finally:
        node.close()


def test_what_a_job_is_told_by_is_shown_to_its_user_alone(mailing: Node) -> None:
    job = submit(mailing, "exit 0", "--hold", "--mail-type=END", "--notify=cat secret")
    shown = mailing.nodectl("show", str(job), user=NOBODY).stdout
    assert "END to nobody" in shown
    assert "cat secret" in shown
    others = mailing.nodectl("show", str(job), user=OTHER)
    assert "secret" not in others.stdout


@pytest.mark.parametrize(
    ("command", "why"),
    [("cat >/dev/null; exit 3", "ended with exit code 3"), ("no-such-program", "ended with exit code 127")],
)
def test_a_command_that_fails_is_shown_to_its_user_alone(mailing: Node, command: str, why: str) -> None:
    job = submit(mailing, "exit 0", f"--notify={command}")
    shown = f"END by --notify: {why}"
    wait_until(lambda: shown in mailing.nodectl("show", str(job), user=NOBODY).stdout, "its user is shown the failure")
    assert "by --notify" not in mailing.nodectl("show", str(job), user=OTHER).stdout


def test_a_command_that_hangs_delays_no_other_user(mailing: Node) -> None:
    go = mailing.scratch / "go"
    submit(mailing, "exit 0", f"--notify=echo $$ >hangs; while [ ! -e {go} ]; do sleep 0.1; done; {TELL}")
    wait_until((mailing.scratch / "hangs").exists, "the command hangs")
    job = submit(mailing, "exit 0", f"--notify={TELL.replace('>>told', '>>others')}", user=OTHER)
    others = mailing.scratch / "others"
    wait_until(lambda: others.exists() and len(others.read_text().splitlines()) == 2, "the other user is told")
    assert others.read_text().splitlines()[1] == f"END {OTHER.pw_uid} {job}"
    assert not (mailing.scratch / "told").exists()
    go.touch()
    assert len(told(mailing, 2)) == 2


def test_a_command_that_takes_too_long_is_killed_with_what_it_has_started() -> None:
    node = noting(notify_timeout=5)  # in which a shell of a busy machine has begun
    try:
        node.start()
        submit(node, "exit 0", "--notify=setsid sleep 1000 & echo $! >>started; sleep 1000")
        path = node.scratch / "started"
        wait_until(lambda: path.exists() and len(path.read_text().split()) == 2, "the second event is told")
        node.assert_clean()  # of the cgroup in which it has run, too
        assert not [pid for pid in path.read_text().split() if os.path.exists(f"/proc/{pid}/exe")]
    finally:
        node.close()


def test_the_administrators_command_runs_as_its_user_and_is_no_root() -> None:
    node = noting("#!/bin/sh\nexit 0\n", notify_user=OTHER.pw_name, notify_events=["FAIL"])
    text = "#!/bin/sh\n{{ id -u; echo $NODECTL_EVENT $SLURM_JOB_USER; cat; }} >>{scratch}/site\n"
    node.configure(notify_command=program(node, "notify", text))
    try:
        node.start()
        submit(node, "exit 3", "-J", "fails")
        path = node.scratch / "site"
        wait_until(lambda: path.exists() and "More:" in path.read_text(), "the command has run")
        assert path.read_text().splitlines()[:2] == [str(OTHER.pw_uid), "FAIL nobody"]
        node.configure(notify_user="root")
        node.restart()
        submit(node, "exit 4")
        wait_until(lambda: "was not told by site: there is no such user" in node.logged(), "root runs it not")
    finally:
        node.close()


def test_a_mail_about_a_batch_job_says_how_to_read_its_output(mailing: Node) -> None:
    job = submit(mailing, "exit 3", "--mail-type=FAIL")
    wait_until(lambda: list(mailing.scratch.glob("mail.*")), "the mail has come")
    (path,) = mailing.scratch.glob("mail.*")
    assert f"\nIts output: nodectl log {job}\n" in path.read_text(encoding="utf-8")
    path.unlink()
    ran = mailing.run("--mail-type=END", "true", user=NOBODY)
    assert ran.returncode == 0, ran.stderr
    wait_until(lambda: list(mailing.scratch.glob("mail.*")), "the mail has come")
    (path,) = mailing.scratch.glob("mail.*")
    assert "Its output" not in path.read_text(encoding="utf-8"), "it went to the terminal"


def test_who_asks_for_mails_of_events_that_cannot_come_is_told_so(mailing: Node) -> None:
    def said(*options: str) -> str:
        done = mailing.nodectl("submit", "--hold", *options, "--wrap", "true", user=NOBODY)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "no mail will tell of a time limit: the job has none; --time gives it one" in said(
        "--mail-type=TIME_LIMIT_80"
    )
    assert said("--mail-type=TIME_LIMIT_80", "--time=1:00:00") == ""
    assert "this machine watches no jobs (the key idle_after)" in said("--mail-type=IDLE")
    assert said("--mail-type=ALL") == ""


def test_without_sendmail_the_submission_and_the_doctor_say_so() -> None:
    node = Node(**QUEUE, sendmail="")
    try:
        node.start()
        done = node.nodectl("submit", "--mail-type=END", "--wrap", "true", user=NOBODY)
        assert done.returncode == 0
        assert "no mail will tell of this job: this machine has no sendmail" in done.stderr
        assert "no sendmail" in node.nodectl("doctor").stdout
        done = node.nodectl("submit", "--mail-user=x@y.org", "--wrap", "true", user=NOBODY)
        assert (done.returncode, "--mail-type=END,FAIL names the events" in done.stderr) == (0, True)
    finally:
        node.close()


def counted(node: Node) -> Counter[str]:
    lines = (node.scratch / "mails").read_text(encoding="utf-8").splitlines()
    return Counter(line.removesuffix(".nodectl").rpartition(".")[0] for line in lines)


@pytest.mark.parametrize("at", [1, 7, 23, 40, 58])
def test_each_event_is_told_once_however_often_the_daemon_is_killed(counting: Node, at: int) -> None:
    """It is killed when so many were told, and again a while later."""
    jobs = 30
    submit(counting, "exit 0", f"--array=1-{jobs}", "--mail-type=ALL,ARRAY_TASKS")
    for moment in (at, min(at + 5, 2 * jobs - 1)):
        wait_until(lambda moment=moment: counted(counting).total() >= moment, f"{moment} were told")
        counting.restart(signal.SIGKILL)
    wait_until(lambda: counted(counting).total() >= 2 * jobs, "all were told")
    wait_until(lambda: not list((counting.dir / "run/notices").iterdir()), "nothing is being told")
    assert set(counted(counting).values()) == {1}
    assert len(counted(counting)) == 2 * jobs


def test_a_mail_under_way_when_the_daemon_is_killed_is_not_sent_again() -> None:
    node = noting("#!/bin/sh\necho begun >>{scratch}/begun\nwhile [ ! -e {scratch}/go ]; do sleep 0.05; done\n")
    begun = node.scratch / "begun"
    begun.touch()
    begun.chmod(0o666)
    try:
        node.start()
        job = submit(node, "exit 0", "--mail-type=END")
        wait_until(lambda: begun.read_text() != "", "the mail is on its way")
        wait_for(node, job, "COMPLETED")
        for _ in range(2):
            node.restart(signal.SIGKILL)
        other = submit(node, "exit 0", "--mail-type=END", user=OTHER)
        wait_until(lambda: begun.read_text().split() == ["begun"] * 2, "another user's mail goes out meanwhile")
        wait_for(node, other, "COMPLETED")
        (node.scratch / "go").touch()
        wait_until(lambda: not list((node.dir / "run/notices").iterdir()), "all is told")
        node.restart()
        assert begun.read_text().split() == ["begun"] * 2
        node.assert_clean()
    finally:
        (node.scratch / "go").touch()
        node.close()


def test_none_of_a_thousand_jobs_is_told_twice_or_not_at_all(counting: Node) -> None:
    request = {"argv": ["x"], "cwd": "/", "ntasks": 1, "environment": {}}
    for _ in range(1000):
        counting.call("Submit", request=request, job={"hold": True, "mail_type": "END"}, script="#!/bin/sh\n")
    counting.call("Cancel", states=["PENDING"])
    for moment in (100, 500, 900):
        wait_until(lambda moment=moment: counted(counting).total() >= moment, f"{moment} were told", 600)
        counting.restart(signal.SIGKILL)
    wait_until(lambda: counted(counting).total() >= 1000, "all were told", 600)
    wait_until(lambda: not list((counting.dir / "run/notices").iterdir()), "nothing is being told")
    assert set(counted(counting).values()) == {1}
    assert len(counted(counting)) == 1000
