"""The kernel's limit of threads on this machine."""

_LIMITS = ("/proc/sys/kernel/threads-max", "/proc/sys/kernel/pid_max")


def most_threads() -> int:
    """Return the limit over all processes, proc(5). Each thread has a number, so the numbers are a limit too."""
    return min(map(_number, _LIMITS))


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())
