"""The service's refusals with option names: parameters of the interface become options of the command line."""

_SAME = ("comment", "container_ns", "cpu_bind", "cpu_max", "cpu_weight", "cpus_per_task", "gid", "hugetlb_max",
         "io_max", "io_weight", "jobid", "label", "mem", "mem_per_cpu", "mpi", "nice", "ntasks", "pids_max", "priority",
         "preload", "pty", "secure", "task_epilog", "task_prolog", "uid")  # fmt: skip
_OPTIONS = {name: name.replace("_", "-") for name in _SAME} | {
    "cwd": "chdir", "programs": "multi-prog", "stderr": "error", "stdin": "input", "stdout": "output",
    "time_limit": "time",
}  # fmt: skip
_NAMES = dict.fromkeys(("Allocate", "Launch", "Submit"), "job-name") | {"UpdateJob": "name"}  # others have an argument


def as_typed(reason: str, parameter: str, method: str) -> str:
    """Return the reason with the parameter's name at the beginning replaced by the option, if there is such an option.

    An error in `layout` names the option itself.
    """
    option, beginning = _NAMES.get(method) if parameter == "name" else _OPTIONS.get(parameter), f"{parameter}: "
    if parameter == "layout" or reason.startswith(f"{beginning}--"):
        return reason.removeprefix(beginning)
    return f"--{option}: {reason.removeprefix(beginning)}" if option and reason.startswith(beginning) else reason
