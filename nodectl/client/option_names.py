"""What the service refuses, in the words of who typed the command: parameters of the interface are options there."""

_SAME = ("container_ns", "cpu_bind", "cpu_max", "cpu_weight", "cpus_per_task", "gid", "hugetlb_max", "io_max",
         "io_weight", "jobid", "label", "mem", "mem_per_cpu", "mpi", "name", "nice", "ntasks", "pids_max", "priority",
         "pty", "secure", "task_epilog", "task_prolog", "uid")  # fmt: skip
_OPTIONS = {name: name.replace("_", "-") for name in _SAME} | {
    "cwd": "chdir", "programs": "multi-prog", "stderr": "error", "stdin": "input", "stdout": "output",
    "time_limit": "time",
}  # fmt: skip


def as_typed(reason: str, parameter: str) -> str:
    """A reason that begins with the parameter's name begins with the option instead, if there is one. What is wrong
    with `layout` names the option itself.
    """
    option, beginning = _OPTIONS.get(parameter), f"{parameter}: "
    if parameter == "layout" or reason.startswith(f"{beginning}--"):
        return reason.removeprefix(beginning)
    return f"--{option}: {reason.removeprefix(beginning)}" if option and reason.startswith(beginning) else reason
