"""The service's life under systemd: it comes and goes, steps do not notice."""

from __future__ import annotations

import json
import pwd
import signal
from pathlib import Path

import pytest

from vm import service
from vm.service import SOCKET_UNIT, UNIT, Sleeper, wait_until

MORE_PAGES = ("nodectl-run", "nodectl.toml", "plugstack.conf", "nodectl.varlink")
PAGES = ("nodectl", *(pytest.param(page, marks=pytest.mark.all) for page in MORE_PAGES))
WATCHDOG_SECONDS = 10  # of which a machine that stalls takes some


def test_service_is_ready_when_systemd_says_so() -> None:
    service.systemctl("restart", UNIT)
    assert service.shown("Type") == "notify"
    assert service.is_active()
    assert "version" in service.nodectl("doctor", "--json")
    assert service.shown("Slice") == "nodectl.slice"
    assert service.shown("ControlGroup") == service.GROUP


def test_doctor_has_no_complaint() -> None:
    assert service.nodectl("doctor").splitlines()[-1].endswith(" 0 warn, 0 fail")


@pytest.mark.parametrize("page", PAGES)
def test_users_can_read_the_manual(page: str) -> None:
    shown = service.run("man", page, user="alice")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"\nNAME\n       {page} - " in shown.stdout


def test_client_starts_a_stopped_service_through_its_socket() -> None:
    service.systemctl("stop", UNIT)
    assert not service.is_active()
    assert service.is_active(SOCKET_UNIT)
    assert service.nodectl("run", "id", "-un", user="alice") == "alice\n"
    assert service.is_active()


def test_clients_wait_while_the_service_is_away_and_are_served_by_the_next() -> None:
    service.systemctl("stop", UNIT)
    clients = [service.start("sh", "-c", "echo $SLURM_JOB_ID", user="alice") for _ in range(4)]
    done = [service.finished(client) for client in clients]
    assert [(status, err) for status, _, err in done] == [(0, "")] * 4
    assert len({out for _, out, _ in done}) == 4


def test_stopping_the_socket_removes_it_and_its_start_brings_it_back() -> None:
    service.systemctl("stop", SOCKET_UNIT, UNIT)
    assert not Path("/run/nodectl/nodectl.sock").exists()
    refused = service.run("nodectl", "run", "true", user="alice")
    assert refused.returncode != 0
    assert "/run/nodectl/nodectl.sock" in refused.stderr
    service.systemctl("start", SOCKET_UNIT)
    assert service.nodectl("run", "echo", "served", user="alice") == "served\n"


def test_reload_keeps_the_daemon_and_its_steps_and_reads_groups_anew() -> None:
    step = Sleeper("alice")
    daemon = service.main_pid()
    assert service.running_steps("bob") == []
    service.run("usermod", "--append", "--groups", "nodectl", "bob")
    try:
        service.systemctl("reload", UNIT)
        wait_until(service.is_active, "the service is ready again")
        assert service.main_pid() == daemon
        assert service.running_steps("bob") == [step.job]
    finally:
        service.run("gpasswd", "--delete", "bob", "nodectl")
    assert step.let_go() == (0, "ran\n", "")


@pytest.mark.parametrize("status", [pytest.param(0, marks=pytest.mark.all), 3])
def test_restart_is_not_noticed_by_a_running_step(status: int) -> None:
    step = Sleeper("alice", status)
    runner, task, daemon = step.runner(), step.task(), service.main_pid()
    service.systemctl("restart", UNIT)
    assert service.main_pid() != daemon
    assert (step.runner(), step.task()) == (runner, task)
    assert service.running_steps("alice") == [step.job]
    service.nodectl("signal", "-s", "USR1", str(step.job), user="alice")
    end, out, err = step.let_go()
    assert (end, sorted(out.split()), err) == (status, ["ran", "told"], "")
    assert service.record(step.job)["exit_status"] == status


@pytest.mark.all
def test_suspended_step_stays_suspended_over_a_restart() -> None:
    step = Sleeper("alice", 2)
    service.nodectl("suspend", str(step.job), user="alice")
    service.systemctl("restart", UNIT)
    (shown,) = json.loads(service.nodectl("ps", "--json", user="alice"))["steps"]
    assert shown["state"] == "SUSPENDED"
    assert "frozen 1" in (step.group / "user/cgroup.events").read_text()
    service.nodectl("resume", str(step.job), user="alice")
    assert step.let_go() == (2, "ran\n", "")


@pytest.mark.all
def test_restart_with_many_steps_loses_none() -> None:
    clients = [service.start("sh", "-c", f"sleep {1 + number % 3}; exit {number}", user="alice") for number in range(8)]
    for _ in range(2):
        service.systemctl("restart", UNIT)
    assert [service.finished(client) for client in clients] == [(number, "", "") for number in range(8)]


def test_step_that_ends_while_the_service_is_stopped_is_recorded_by_the_next() -> None:
    step = Sleeper("alice", 5)
    service.systemctl("stop", UNIT)
    assert step.task()
    assert service.shown("Result") == "success"
    assert step.let_go() == (5, "ran\n", "")
    service.systemctl("start", UNIT)
    ended = service.record(step.job)
    assert (ended["state"], ended["exit_status"]) == ("FAILED", 5)


def test_stop_is_quick_and_leaves_no_process_of_the_service() -> None:
    daemon, forkserver = service.main_pid(), service.forkserver()
    service.systemctl("stop", UNIT)
    assert service.shown("Result") == "success"
    service.assert_gone(daemon, forkserver)
    assert service.shown("ActiveState") == "inactive"


def test_killed_daemon_is_started_again_and_its_steps_go_on() -> None:
    step = Sleeper("alice", 4)
    daemon = service.main_pid()
    service.kill(daemon)
    wait_until(lambda: service.main_pid() not in {0, daemon} and service.is_active(), "systemd has started another")
    assert service.running_steps() == [step.job]
    assert step.let_go() == (4, "ran\n", "")
    assert service.record(step.job)["exit_status"] == 4


def test_hanging_daemon_is_ended_by_the_watchdog_and_its_steps_go_on() -> None:
    began = service.since()
    service.configure_unit(f"WatchdogSec={WATCHDOG_SECONDS}\nLimitCORE=0")
    service.systemctl("restart", UNIT)
    step = Sleeper("alice")
    daemon = service.main_pid()
    service.kill(daemon, number=signal.SIGSTOP)
    wait_until(lambda: service.main_pid() not in {0, daemon} and service.is_active(), "the watchdog acted")
    assert "Watchdog timeout" in service.logged(began)
    assert step.let_go() == (0, "ran\n", "")
    daemon = service.main_pid()
    heard: set[str] = set()

    def is_heard() -> bool:
        heard.add(service.shown("WatchdogTimestampMonotonic"))
        return len(heard) > 2

    wait_until(is_heard, "it keeps telling that it lives")
    assert service.main_pid() == daemon


def test_bad_configuration_is_said_in_one_line_and_harms_no_step() -> None:
    step = Sleeper("alice")
    began = service.since()
    service.write_config("kill_wait = -1\n")
    assert service.run("systemctl", "restart", UNIT).returncode != 0
    assert f"{service.CONFIG}: kill_wait: " in service.logged(began)
    assert step.task()
    service.restore()
    assert step.let_go() == (0, "ran\n", "")
    assert service.record(step.job)["exit_status"] == 0


def test_nothing_survives_the_death_of_daemon_forkserver_and_runner_but_a_record() -> None:
    step = Sleeper("alice")
    task = step.task()
    service.kill(service.forkserver(), step.runner(), service.main_pid())
    service.finished(step.client)
    wait_until(service.is_active, "systemd has started another")
    ended = service.record(step.job)
    assert (ended["state"], ended["exit_status"]) == ("NODE_FAIL", 1)
    service.assert_clean()
    service.assert_gone(task)


def test_the_journal_finds_what_was_said_of_a_job() -> None:
    began = service.since()
    step = Sleeper("alice")
    assert step.let_go() == (0, "ran\n", "")
    said = f"ended step={step.job}.0 "
    wait_until(lambda: said in service.logged(began), "the service has told of it")
    match = [f"NODECTL_JOB={step.job}", "NODECTL_MESSAGE=step-ended", f"USER_ID={pwd.getpwnam('alice').pw_uid}"]
    assert said in service.run("journalctl", "--output", "cat", *match).stdout
