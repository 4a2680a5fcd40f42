"""A service that runs in a mount namespace of its own, as in a container, makes containers from each of its CPUs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
from nodectl.launch.container import namespaces
from nodectl.kernel import _namespace

cpus = os.sched_getaffinity(0)
for outer in cpus:
    if os.fork() == 0:
        os.sched_setaffinity(0, {outer})
        _namespace.unshare(_namespace.CLONE_NEWNS)
        plain = os.open(sys.argv[1], os.O_RDONLY)
        place = _namespace.clone_mount(plain)
        _namespace.move_mount(place, plain)
        _namespace.set_mount(place, 0, _namespace.MS_PRIVATE, False)
        for inner in cpus:
            os.sched_setaffinity(0, {inner})
            os.sched_setaffinity(0, cpus)
            made = namespaces.make(["mnt"], None, lambda begun: None)
            os.mkdir(f"{outer}-{inner}", dir_fd=place)
            namespaces.hold(os.open(f"{outer}-{inner}", os.O_RDONLY, dir_fd=place), made)
            assert os.sched_getaffinity(0) == cpus
            print("held", flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_a_mount_namespace_of_each_cpu_is_held_in_that_of_each_other_cpu(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "held" in done.stdout
