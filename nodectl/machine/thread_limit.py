"""How many threads the kernel lets this machine have."""


def most_threads() -> int:
    """The limit over all processes, proc(5)."""
    with open("/proc/sys/kernel/threads-max", encoding="ascii") as file:
        return int(file.read())
