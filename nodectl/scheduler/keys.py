"""The configuration's keys about the queue: the order of jobs, the limits of users, and preemption."""

from __future__ import annotations

from nodectl.model.config.key import Key, section
from nodectl.model.config.values import SWITCH, Parser, lines_of, number, one_of

_LONG = number(0, 10 * 366 * 86_400, "seconds")
_WEIGHT = number(0, 1_000_000_000, "points")
_COUNT = number(0, 100_000_000, "jobs")
_CPUS, _DEVICES = number(0, 100_000_000, "CPUs"), number(0, 100_000_000, "devices")


def _qos(value: object) -> tuple[str, ...]:
    lines = lines_of(value)
    if lines:
        from nodectl.scheduler import policy  # imported only where the key has lines

        policy.qos_lines(lines)
    return lines


QOS = Parser(
    "lines of words Name=, Priority=, Preempt=, PreemptMode=, Users=, MaxTime=, MaxJobsPerUser=, "
    "MaxSubmitJobsPerUser=, MaxCpusPerUser=, MaxMemoryPerUser=, MaxDevicesPerUser=, as a list",
    _qos,
)


def _week_hours(value: object) -> tuple[str, ...]:
    lines = lines_of(value)
    if lines:
        from nodectl.scheduler import policy  # imported only where the key has lines

        policy.week_lines(lines)
    return lines


WEEK_HOURS = Parser("lines of words CpuHours=, GpuHours=, Users=, as a list", _week_hours)

QUEUE = section(
    "queue",
    Key(
        "priority_weight_age", _WEIGHT, 1000,
        "Points of priority that a job gets for waiting, all of them after priority_max_age.",
    ),
    Key(
        "priority_weight_fairshare", _WEIGHT, 10_000,
        "Points that a job gets whose user has used nothing of late; fewer, the more they used.",
    ),
    Key(
        "priority_weight_job_size", _WEIGHT, 0,
        "Points that a job gets which wants all CPUs, others in proportion.",
    ),
    Key(
        "priority_weight_qos", _WEIGHT, 10_000,
        "Points that a job gets of the quality of service with the highest Priority, others in proportion.",
    ),
    Key(
        "priority_max_age", number(1, 10 * 366 * 86_400, "seconds"), 7 * 86_400,
        "Seconds after which waiting gives no more points.",
    ),
    Key(
        "priority_decay_half_life", _LONG, 7 * 86_400,
        "Seconds after which use of CPUs counts half for the fair share; 0: it counts for ever.",
    ),
    Key(
        "priority_favor_small", SWITCH, False,
        "Whether the points for size go to small jobs rather than to large ones.",
    ),
    Key(
        "max_wait", _LONG, 86_400,
        "Seconds after which a job goes before all others, in the order of waiting, so that no job waits for ever; of "
        "one user's jobs one in each such span. 0: never.",
    ),
    Key(
        "bf_window", _LONG, 86_400,
        "Seconds into the future for which expected starts of other jobs than the first in line are worked out.",
    ),
    Key(
        "bf_max_job_test", number(1, 1_000_000, "jobs"), 100,
        "Most jobs for which a place is sought each time that resources become free.",
    ),
    Key(
        "bf_interval", number(1, 86_400, "seconds"), 30,
        "Seconds after which the rest of a longer queue is looked at.",
    ),
    Key(
        "default_time", _LONG, 0,
        "Time limit of a job that names none, in seconds; 0 for no limit. Backfill lives on time limits.",
    ),
    Key(
        "max_time", _LONG, 0,
        "Longest time limit that a job may name, in seconds; 0: any, and none.",
    ),
    Key(
        "max_jobs_per_user", _COUNT, 0,
        "Most jobs that one user, root excepted, may have running at a time; others wait. 0: any number.",
    ),
    Key(
        "max_submit_jobs_per_user", _COUNT, 10_000,
        "Most jobs that one user, root excepted, may have waiting and running; more are refused. An array that waits "
        "counts once. 0: any number.",
    ),
    Key(
        "max_cpus_per_user", _CPUS, 0,
        "Most CPUs that the running jobs of one user, root excepted, may have together. 0: all.",
    ),
    Key(
        "max_memory_per_user", number(0, 1 << 40, "MiB"), 0,
        "Most memory that they may have together, in MiB. 0: all.",
    ),
    Key(
        "max_devices_per_user", _DEVICES, 0,
        "Most devices that they may have together; a part of one counts as one. 0: all.",
    ),
    Key(
        "week_hours", WEEK_HOURS, (),
        "Most hours of CPUs and GPUs that jobs use in a week, which begins on Monday: CpuHours=500 GpuHours=100 for "
        "each user, Users=ann,bob CpuHours=800 for these users together, root excepted. A job that could exceed them "
        "before its time limit waits.",
    ),
    Key(
        "max_array_size", number(0, 4_000_001, "tasks"), 1_000_001,
        "One more than the greatest index of a job array; 0 for no arrays.",
    ),
    Key(
        "qos", QOS, (),
        "Qualities of service: Name=high Priority=1000 Preempt=normal Users=ann,bob MaxCpusPerUser=16. Preempt= names "
        "those whose running jobs make room for jobs of this one, in the way that their own PreemptMode=, or "
        "preempt_mode, says: by suspend, requeue or cancel, and not at all where it is off. Limits here go before the "
        'keys above. There is always one of the name "normal", which jobs have that name none: '
        "Name=normal PreemptMode=suspend.",
    ),
    Key(
        "preempt_mode", one_of("off", "suspend", "requeue", "cancel"), "off",
        "How jobs make room whose quality of service has no PreemptMode=.",
    ),
)  # fmt: skip
