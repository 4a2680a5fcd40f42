"""How many threads the kernel lets this machine have."""

_LIMITS = ("/proc/sys/kernel/threads-max", "/proc/sys/kernel/pid_max")


def most_threads() -> int:
    """The limit over all processes, proc(5). Each thread has a number, so there are no more than numbers."""
    return min(map(_number, _LIMITS))


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())
