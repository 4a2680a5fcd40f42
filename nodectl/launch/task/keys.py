"""The configuration's keys about the life of a step: end and suspension of tasks, scripts, and hard limits."""

from __future__ import annotations

from nodectl.model.config.key import Key, section
from nodectl.model.config.values import SCRIPT, SECONDS, SWITCH, Parser, number, split_words
from nodectl.model.number import scaled

RLIMITS = frozenset({"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS"})
_MOST = (1 << 63) - 1


def _hard_limits(value: object) -> tuple[str, ...]:
    words = tuple(split_words(value, ","))
    for word in words:
        hard_limit(word)
    return words


def hard_limit(word: str) -> tuple[str, int]:
    """Return the name and the number of a hard limit, -1 for infinity. Raises ValueError."""
    name, _, number = word.partition("=")
    limit = -1 if number == "infinity" else scaled(number, _MOST)
    if name not in RLIMITS or limit is None:
        raise ValueError(f"has {word!r}")
    return name, limit


HARD_LIMITS = Parser(
    f"NAME=NUMBER, of {', '.join(sorted(RLIMITS))}, with K, M, G or T behind NUMBER, or NAME=infinity, as a list",
    _hard_limits,
)

STEPS = section(
    "steps",
    Key(
        "kill_wait", SECONDS, 30,
        "Seconds between SIGTERM and SIGKILL. An interactive shell of run --pty, which ignores SIGTERM, gets SIGHUP as "
        "well.",
    ),
    Key(
        "unkillable_step_timeout", SECONDS, 60,
        "Seconds after SIGKILL until a step that is still there is reported as unkillable.",
    ),
    Key(
        "suspend_grace_time", SECONDS, 2,
        "Seconds between SIGTSTP and the freezing of a step that is suspended.",
    ),
    Key(
        "task_prolog", SCRIPT, None,
        "Program that runs as the user before each task.",
    ),
    Key(
        "task_epilog", SCRIPT, None,
        "Program that runs as the user after each task.",
    ),
    Key(
        "prolog", SCRIPT, None,
        "Program that runs as root before the first step of each job; the job is refused if it fails.",
    ),
    Key(
        "epilog", SCRIPT, None,
        "Program that runs as root after the end of each job.",
    ),
    Key(
        "prolog_slurmctld", SCRIPT, None,
        "Program that runs as root before the first step of each job, in front of the prolog, as that of Slurm's "
        "controller; the job is refused if it fails.",
    ),
    Key(
        "epilog_slurmctld", SCRIPT, None,
        "Program that runs as root after the end of each job, behind the epilog, as that of Slurm's controller.",
    ),
    Key(
        "prolog_epilog_timeout", SECONDS, 0,
        "Seconds after which such a program is killed and counts as failed; 0 for never.",
    ),
    Key(
        "warm_runners", number(0, 1024, "runners"), 16,
        "Step runners that serve several steps of one user, one after the other; half of them for one user; 0: none, "
        "and none that is forked ahead of need.",
    ),
    Key(
        "warm_runner_time", number(1, 3600, "seconds"), 3,
        "Seconds that such a runner waits for its user's next step, and one that is forked ahead of need for any.",
    ),
    Key(
        "always_fork", SWITCH, False,
        "Fork every task, as is done where a plugin is called in it; for tests: tasks cost three times as much.",
    ),
)  # fmt: skip
