"""What a plain user's task finds under the service: the machine as after a login, and nothing of the service's."""

from __future__ import annotations

import json
from typing import Any

from vm import service
from vm.service import STEPS_GROUP, Sleeper

LOOK = """
import json, os, resource
descriptors = [fd for fd in range(100) if os.path.exists(f"/proc/self/fd/{fd}")]
with open("/proc/self/status") as file:
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
with open("/proc/self/cgroup") as cgroup, open("/proc/self/oom_score_adj") as oom:
    print(json.dumps({
        "identity": [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
        "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")},
        "limits": {name: resource.getrlimit(getattr(resource, name))[0] for name in dir(resource) if "RLIMIT_" in name},
        "directory": os.getcwd(), "umask": os.umask(0), "oom": oom.read().strip(), "cgroup": cgroup.read().strip(),
        "descriptors": descriptors, "environment": dict(os.environ), "status": status,
    }))
"""
OF_THE_SERVICE = {"NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC",
                  "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "RUNTIME_DIRECTORY", "STATE_DIRECTORY",
                  "CONFIGURATION_DIRECTORY", "LD_PRELOAD"}  # fmt: skip
USUAL_SIGNALS = (1 << 31) - 1  # the two above are the C library's


def seen_in_a_step(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(service.nodectl("run", *words, "python3", "-c", LOOK, user="alice"))
    return found


def seen_in_a_login() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(service.run("python3", "-c", LOOK, user="alice").stdout)
    return found


def test_task_that_is_not_confined_is_what_its_user_is_after_a_login() -> None:
    step, login = seen_in_a_step("--secure=none"), seen_in_a_login()
    for what in ("identity", "namespaces", "limits", "directory", "umask", "oom"):
        assert step[what] == login[what], what
    for what in ("NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "SigBlk"):
        assert step["status"][what] == login["status"][what], what
    ignored = [int(seen["status"]["SigIgn"], 16) & USUAL_SIGNALS for seen in (step, login)]
    assert ignored[0] == ignored[1]


def test_task_has_no_descriptor_and_no_variable_of_the_service() -> None:
    step = seen_in_a_step()
    assert step["descriptors"] == [0, 1, 2]
    assert OF_THE_SERVICE & set(step["environment"]) == set()


def test_set_user_id_program_of_a_task_that_is_not_confined_gains_root() -> None:
    words = ("passwd", "--status", "alice")
    assert len(service.nodectl("run", "--secure=none", *words, user="alice").split()) > 2  # of shadow(5)
    assert service.nodectl("run", *words, user="alice") == "alice P\n"


def test_task_is_born_in_the_unit_of_steps() -> None:
    step = seen_in_a_step()
    job = step["environment"]["SLURM_JOB_ID"]
    assert step["cgroup"] == f"0::{STEPS_GROUP}/job_{job}/step_0/user/task_0"


def test_users_see_and_end_their_own_steps_only() -> None:
    step = Sleeper("alice")
    assert (service.running_steps("alice"), service.running_steps("bob")) == ([step.job], [])
    refused = service.run("nodectl", "signal", str(step.job), user="bob")
    assert (refused.returncode, "no step" in refused.stderr) == (1, True)
    service.nodectl("signal", "-s", "KILL", str(step.job), user="alice")
    assert service.finished(step.client)[0] == 128 + 9


def test_task_that_daemonizes_is_ended_with_its_step() -> None:
    script = "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!"
    pid = int(service.nodectl("run", "sh", "-c", script, user="alice"))
    service.assert_clean()
    service.assert_gone(pid)
