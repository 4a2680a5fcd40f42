"""One step from end to end."""

from __future__ import annotations

import re

from rootful.node import NOBODY, Node


def test_tasks_run_as_the_user_on_their_cores_in_their_cgroups(shared_node: Node) -> None:
    script = "grep Cpus_allowed_list /proc/self/status; id -u; id -g; id -G; cat /proc/self/cgroup"
    done = shared_node.run("-n", "4", "-l", "--cpu-bind=verbose,cores", "--", "sh", "-c", script, user=NOBODY)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        lines = [line[3:] for line in done.stdout.splitlines() if line.startswith(f"{rank}: ")]
        assert lines[0].startswith("Cpus_allowed_list:")
        assert lines[1:4] == [str(NOBODY.pw_uid), str(NOBODY.pw_gid), str(NOBODY.pw_gid)]
        assert re.search(rf"/job_\d+/step_0/user/task_{rank}$", "\n".join(lines))
    assert len(re.findall(r"cpu-bind=MASK - \S+, task +\d+ +\d+ \[\d+\]: mask 0x\w+ set", done.stderr)) == 4
    shared_node.assert_clean()
