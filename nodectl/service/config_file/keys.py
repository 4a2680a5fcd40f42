"""The configuration's keys of the service: name and files, the limits of users, the records kept."""

from __future__ import annotations

import os

from nodectl.launch.task.keys import HARD_LIMITS
from nodectl.model.config.key import Key, section
from nodectl.model.config.values import NAME, PATH, SCRIPT, SECONDS, SWITCH, Parser, absolute, number, one_of, words
from nodectl.model.notice import EVENTS

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Mapping

# sun_path of unix(7) has 108 bytes with the NUL that ends it; ".new" is its name until it listens.
_MAX_SOCKET_PATH = 103
_SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail")


def _host(values: Mapping[str, object]) -> str:
    return os.uname().nodename.partition(".")[0] or "localhost"


def _default_socket(values: Mapping[str, object]) -> str:
    return os.path.join(str(values["runtime_dir"]), "nodectl.sock")


def _most_tasks(values: Mapping[str, object]) -> int:
    return int(str(values["max_tasks_per_node"]))


def _socket(value: object) -> str:
    path = absolute(value)
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise ValueError(f"has {len(os.fsencode(path))} bytes")
    return path


SOCKET = Parser(f"an absolute path of at most {_MAX_SOCKET_PATH} bytes", _socket)

NODE = section(
    "node",
    Key(
        "node_name", NAME, _host,
        "Name of this node: SLURMD_NODENAME, SLURM_NODELIST and %N in file names.",
        shown="the host's name up to its first dot",
    ),
    Key(
        "cluster_name", NAME, "nodectl",
        "What SLURM_CLUSTER_NAME says: for plugins and programs that know clusters by their names.",
    ),
    Key(
        "partition_name", NAME, "local",
        "What SLURM_JOB_PARTITION says: every job is in this partition.",
    ),
)  # fmt: skip

FILES = section(
    "files",
    Key(
        "runtime_dir", PATH, "/run/nodectl",
        "Directory of sockets and of what may be lost when the machine restarts.",
    ),
    Key(
        "state_dir", PATH, "/var/lib/nodectl",
        "Directory of the history and of what must outlive a restart.",
    ),
    Key(
        "socket", SOCKET, _default_socket,
        "Socket on which the daemon takes requests.",
        shown="nodectl.sock in runtime_dir",
    ),
)  # fmt: skip

LIMITS = section(
    "limits",
    Key(
        "admin_group", NAME, "nodectl",
        "Group whose members may do what root may: see and end everybody's steps, and give them other limits.",
    ),
    Key(
        "max_tasks_per_node", number(1, 65_533, "tasks"), 512,
        "Most tasks of one step.",
    ),
    Key(
        "max_message_bytes", number(65_536, 1 << 30, "bytes"), 8 << 20,
        "Longest request or answer; a longer one ends the connection.",
    ),
    Key(
        "max_connections_per_user", number(1, 65_536, "connections"), 128,
        "Most connections that one user may hold to the daemon.",
    ),
    Key(
        "max_steps_per_user", number(1, 1_000_000, "steps"), 512,
        "Most steps that one user, root excepted, may have running at a time.",
    ),
    Key(
        "max_tasks_per_user", number(1, 10_000_000, "tasks"), lambda values: max(8192, _most_tasks(values)),
        "Most tasks that the running steps of one user, root excepted, may have together.",
        shown="8192, or max_tasks_per_node where that is more",
    ),
    Key(
        "max_step_bytes_per_user", number(1 << 20, 1 << 40, "bytes"), 64 << 20,
        "Most bytes that the files of one user's steps, root excepted, may have together in runtime_dir: programs, "
        "arguments, environments, and room for each record and trace.",
    ),
    Key(
        "task_hard_limits", HARD_LIMITS, (),
        'Hard limits of tasks, as setrlimit(2) counts them: ["NPROC=4096", "CORE=0", "AS=16G"]. NPROC, for which the '
        "kernel counts all processes of a user, MEMLOCK and CORE are otherwise those of process 1, as after a login; "
        "what else is not named is the service's.",
    ),
    Key(
        "user_cache_seconds", SECONDS, 30,
        "Seconds for which what was found out about a user and their groups is used again.",
    ),
)  # fmt: skip

JOBS = section(
    "jobs",
    Key(
        "max_script_size", number(1, 1 << 30, "bytes"), 4 << 20,
        "Longest script of a batch job, in bytes.",
    ),
    Key(
        "kept_scripts_per_user", number(0, 100_000, "jobs"), 100,
        "Latest ended batch jobs of each user whose script and environment stay on the disk, for root alone, so that "
        "`nodectl resubmit` can submit them again; an array counts once. They have an eighth of "
        "max_batch_bytes_per_user at most. 0: none.",
    ),
    Key(
        "max_batch_bytes_per_user", number(1 << 16, 1 << 40, "bytes"), 256 << 20,
        "Most bytes that the daemon may keep for the jobs of one user, root excepted, that are in the queue: scripts, "
        "environments, options, layouts, indices of arrays, dependencies. They count as they are before compression.",
    ),
    Key(
        "interactive_lease", number(1, 86_400, "seconds"), 60,
        "Seconds after which a job of nodectl run or alloc is cancelled if it has not begun and no client waits.",
    ),
    Key(
        "drain_on_failure", words("prolog", "epilog"), ("prolog", "epilog"),
        "Which scripts and hooks around a job drain the node where they fail: no job starts before `nodectl node "
        "resume`.",
    ),
    Key(
        "idle_after", number(0, 366 * 86_400, "seconds"), 0,
        "Seconds after which people are told of a running job that does nothing: it uses less than one percent of a "
        "CPU, reads and writes nothing, and its GPUs do not work. A GPU whose load the machine does not tell counts as "
        "one that works. 0: never.",
    ),
    Key(
        "idle_action", one_of("tell", "end"), "tell",
        "What is done about such a job: its user is told, or it is ended, too, if it still does nothing idle_grace "
        "later.",
    ),
    Key(
        "idle_grace", number(0, 366 * 86_400, "seconds"), 600,
        "Seconds between the notice and the end of such a job.",
    ),
    Key(
        "private_data", words("jobs"), (),
        'What users are not told of each other: "jobs" hides others\' jobs, and their programs outside of jobs.',
    ),
)  # fmt: skip

NOTICES = section(
    "notices",
    Key(
        "sendmail", SCRIPT, lambda _: next(filter(os.path.isfile, _SENDMAIL), ""),
        "Program that takes the mails of --mail-type, as the job's user, with -i and the addresses; \"\" for none.",
        shown="/usr/sbin/sendmail or /usr/lib/sendmail, where there is one",
    ),
    Key(
        "notify_command", SCRIPT, None,
        "Program that is executed for each event of which a job's user wants a mail, and for those of notify_events: "
        "NODECTL_EVENT, NODECTL_EVENT_ID, SLURM_JOB_ID and the like tell what it is about, its input is the text.",
    ),
    Key(
        "notify_user", NAME, "nobody",
        "User as whom notify_command is executed; not root.",
    ),
    Key(
        "notify_events", words(*EVENTS), (),
        "Events of all jobs of the queue of which notify_command is told, whatever their users want.",
    ),
    Key(
        "notify_timeout", number(1, 86_400, "seconds"), 30,
        "Seconds that sendmail, notify_command and the command of --notify have; then they are killed.",
    ),
    Key(
        "max_notices_per_user", number(1, 10_000_000, "notices"), 5000,
        "Most notices about the jobs of one user that may wait to be told, and that are told in an hour. Those beyond "
        "the hour's wait; those beyond what may wait are lost, and named in the log. A notice with a long command or "
        "path counts once more among those that wait with each 4 KiB.",
    ),
)  # fmt: skip

LOGINS = section(
    "logins",
    Key(
        "login_entry", one_of("off", "join", "require"), "off",
        "What `nodectl login --pam` does with a login session that begins, where PAM calls it. join: the session of a "
        "user with running jobs joins one of them and ends with it, other sessions stay where systemd has put them; "
        "require: a user without running jobs is refused as well; off: nothing. Root and the members of admin_group "
        "are left alone. Read at each login.",
    ),
    Key(
        "login_when_down", one_of("allow", "refuse"), "allow",
        "What is done about such a session when service and name service do not answer within five seconds: "
        "it stays where systemd has put it, or is refused.",
    ),
)  # fmt: skip

RECORDS = section(
    "records",
    Key(
        "history_limit", number(0, 100_000_000, "steps"), 10_000,
        "Ended steps that are kept in the history, and as many ended jobs. Where there are more, who has more than "
        "their share loses their own oldest.",
    ),
    Key(
        "history_bytes", number(1 << 20, 1 << 50, "bytes"), 512 << 20,
        "Bytes of records and traces that are kept in the history, shared in the same way.",
    ),
    Key(
        "history_days", number(0, 36_500, "days"), 0,
        "Days for which ended steps and jobs are kept in the history at most; 0: as long as there is room.",
    ),
    Key(
        "log_ended_steps", SWITCH, True,
        "Whether the service's log has a line for each step that ended, which no later step removes.",
    ),
    Key(
        "trace", SWITCH, True,
        "Whether each step records its calls.",
    ),
)  # fmt: skip
