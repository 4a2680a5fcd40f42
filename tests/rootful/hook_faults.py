"""What hooks do wrong, as orders for a stage with the words by which each is told; and the time that hooks have."""

from __future__ import annotations

HOOK_SECONDS = 3  # that a hook or a script may take: a blameless one of a busy machine took more than one
LATE = f"took longer than {HOOK_SECONDS} s"
RETURNS = {
    "returns -1": ("rc = -1", "returned -1"),
    "returns 1": ("rc = 1", "returned 1"),
    "raises": ("raise ValueError('broken')", "ValueError: broken"),
}
FAULTS = {**RETURNS, "hangs": ("while True: time.sleep(1)", LATE)}
# Of the process in which a job's or the daemon's hooks are called.
DEATHS = {
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", "died by SIGSEGV"),
    "exits with success": ("os._exit(0)", "ended with exit status 0"),
    "stops": ("os.kill(os.getpid(), signal.SIGSTOP)", LATE),
    "closes what it did not open": (
        "os.closerange(3, 65536)",
        "closed the descriptor through which its process reports",
    ),
    "cannot be interrupted": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\nwhile True: time.sleep(1)",
        LATE,
    ),
}
