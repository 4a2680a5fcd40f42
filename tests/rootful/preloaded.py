"""Scripts and modules for steps with --preload."""

from __future__ import annotations

from pathlib import Path

from rootful.node import Node

# Shows what a program may notice of the interpreter that it runs in, beside its process number.
SHOW = """
import os, resource, signal, sys
def status(*names):
    with open("/proc/self/status") as lines:
        return [line.strip() for line in lines if line.startswith(names)]
print(__name__, __file__ if "__file__" in globals() else None, __builtins__, __doc__, __package__)
print(sys.argv, sys.orig_argv, sys.path, sys.executable, sys.flags, sys.modules["__main__"].__dict__ is globals())
for one in (sys.stdin, sys.stdout, sys.stderr):
    print(one.name, one.mode, one.encoding, one.errors, one.line_buffering, one.write_through, one.isatty())
print(sys.__stdout__ is sys.stdout, sys.stdin.readline())
print(os.getcwd(), oct(os.umask(0o22)), os.getpriority(os.PRIO_PROCESS, 0), len(os.sched_getaffinity(0)))
print([resource.getrlimit(number) for number in range(16)])
print([signal.getsignal(number) for number in range(1, 32)], signal.pthread_sigmask(signal.SIG_BLOCK, ()))
print(status("Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp:", "SigIgn", "SigBlk"))
print(os.environ.pop("SLURM_TASK_PID") == str(os.getpid()))
print(sorted(item for item in os.environ.items() if "JOB" not in item[0] and "STEP" not in item[0]))
print(open("/proc/self/cgroup").read().rpartition("/")[2], os.getuid(), os.getsid(0) != os.getpid())
print([fd for fd in range(3, 100) if os.path.exists("/proc/self/fd/%d" % fd)], flush=True)
os.system("env | grep -c MARK; umask")
"""


def script(node: Node, text: str, name: str = "script.py") -> str:
    """Write a script into the node's scratch directory. Return its path."""
    path = node.scratch / name
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def module(node: Node, text: str, name: str = "preloaded_module") -> dict[str, str]:
    """Write a module. Return the variables with which Python finds it."""
    place = node.scratch / "modules"
    place.mkdir(exist_ok=True)
    (place / f"{name}.py").write_text(text, encoding="utf-8")
    return {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}


def proportional(pids: list[int]) -> int:
    """KiB of memory of processes, of what several share only their part: Pss."""
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total
