"""The fork of a stepd where the kernel does not fork into cgroups, in a process of its own: nothing else is replaced
but what a step brings with it.
"""

import subprocess
import sys

FORK = """
import errno, os, socket, types
from nodectl.launch.forkserver import runners, stepds

class Removed:
    def __init__(self, path):
        pass
    def make(self):
        return self
    def fork(self):
        raise OSError(errno.ENOSYS, "no clone3")
    def add(self, pid):
        raise OSError(errno.ENOENT, "the cgroup has gone")

stepds.tree = types.SimpleNamespace(Group=Removed, RUNNERS="runners")
stepds.confinement = types.SimpleNamespace(load=lambda *_: None)
node = types.SimpleNamespace(with_container=lambda _: node)
store = types.SimpleNamespace(make_ready=lambda _: None, rows=[])
request = {
    "step": "1.0", "cgroup": "/job_1/step_0/stepd", "runners": "/runners", "spec": "/nowhere/1.0.json", "trace": False,
    "secure": "none",
    "container_plugin": "none", "keep": None, "stack": [],
}
first = os.getpid()
answer = stepds.Stepds(socket.socket(), node, "", store, runners.Runners(0, 3)).start(b"", request, [])
if os.getpid() != first:
    os.write(1, b"the child serves orders, too\\n")
    os._exit(0)
_, status = os.waitpid(answer["pid"], 0)
os.write(1, b"its stepd ended with %d" % os.waitstatus_to_exitcode(status))
"""


def test_a_stepd_that_cannot_enter_its_cgroup_is_no_second_forkserver() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", FORK], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("its stepd ended with 1", 0), done.stderr
    assert "the cgroup has gone" in done.stderr
