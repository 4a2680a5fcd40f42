"""The system calls denied by the levels, and why. Everything else is allowed: unknown programs run.

A denied call fails with EPERM, as without a capability; programs handle that. Names that a machine does not have
(i386's beside those of x86-64) cost nothing.
"""

# Calls that no job needs. Each is a way into the kernel, out of the job, or past its end.
DEFAULT: dict[str, tuple[str, ...]] = {
    "another kernel, or parts of one": (
        "kexec_load", "kexec_file_load", "reboot", "init_module", "finit_module", "delete_module", "create_module",
        "bpf",
    ),
    "pages that another process is made to wait for, which turns races in the kernel into certainties": (
        "userfaultfd",
    ),
    "keyrings: not of the job but of the user, shared with all that the user runs, and kept by the kernel": (
        "add_key", "request_key", "keyctl",
    ),
    "the machine's own settings": (
        "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "nfsservctl", "settimeofday", "stime", "clock_settime",
        "clock_settime64", "vhangup",
    ),
    "hardware, and old ways into it": ("ioperm", "iopl", "vm86", "vm86old", "uselib", "lookup_dcookie"),
    "files by their numbers, past every directory on the way": ("open_by_handle_at",),
}  # fmt: skip

STRICT: dict[str, tuple[str, ...]] = {
    "what is mounted": (
        "mount", "umount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree",
        "move_mount", "mount_setattr", "open_tree_attr",
    ),
    "other namespaces; new ones see NAMESPACES": ("setns",),
    "much of the kernel behind one call, with many security fixes": (
        "perf_event_open", "io_uring_setup", "io_uring_enter", "io_uring_register",
    ),
}  # fmt: skip

# Calls that an older libseccomp does not know. From 424 on a call has the same number on all machines.
NUMBERS = {"mount_setattr": 442, "quotactl_fd": 443, "open_tree_attr": 467}

# linux/sched.h: mount, cgroup, uts, ipc, user, pid, net; clone(2) has no bit for time.
NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
NEW_TIME = 0x80
# asm-generic/ioctls.h: they put input into a terminal, which the next process to read takes for typed.
TYPING_FOR_OTHERS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
IOCTL_BITS = 0xFFFFFFFF  # the kernel looks at no more of a 64-bit argument

# To open a file and empty it: O_TRUNC without O_WRONLY or O_RDWR, which Landlock does not see before version 3.
ACCESS_MODE, EMPTY = 0o3, 0o1000
