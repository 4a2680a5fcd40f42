"""The options of jobs which may have to wait: for `nodectl run`, `submit` and `alloc`.

Rows are plain tuples: long name, letter, argument in the help, help, reader, whether there is an argument, and the name
to keep the value under; `run_options` makes options of them. `run` needs them only where given. Here each option is
read alone; the service judges their combination.
"""

from nodectl.client.command import user_file
from nodectl.model.moments import moment
from nodectl.model.number import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Row = tuple[str, str, str, str, Callable[[str], object], int, str]

NO_ARGUMENT, ARGUMENT, MAYBE_ARGUMENT = 0, 1, 2

_MOST = 2**31 - 1
_NICE = 100  # of --nice without a number


def nice(text: str) -> int:
    """Return the reduction of the priority; a number below 0, a higher priority, is for admins only."""
    if not text:
        return _NICE
    number = whole(text.removeprefix("-"), _MOST)
    if number is None:
        raise ValueError(f'Invalid numeric value "{text[:20]}"')
    return -number if text.startswith("-") else number


def priority(text: str) -> int:
    """Parse a priority, or TOP."""
    number = _MOST if text.upper() == "TOP" else whole(text, _MOST)
    if number is None:
        raise ValueError(f'Invalid numeric value "{text[:20]}"')
    return number


def immediate(text: str) -> int:
    """Return the number of seconds to wait."""
    return count(text or "0")


def count(text: str) -> int:
    """Parse a number from 0 on."""
    number = whole(text, _MOST)
    if number is None:
        raise ValueError(f'Invalid numeric value "{text[:20]}"')
    return number


def array(text: str) -> str:
    """Return the indices of an array as typed: 0-15, 1,3,5, 0-100:10, with %N at most N tasks at a time."""
    from nodectl.scheduler import job_array  # the service reads them by the same rules

    try:
        job_array.parse(text)
    except ValueError:
        raise ValueError(f"Invalid job array specification {text[:40]!r}") from None
    return text


def open_mode(text: str) -> str:
    """Return append or truncate; a letter is enough."""
    for word in ("append", "truncate"):
        if text and word.startswith(text.lower()):
            return word
    raise ValueError(f"Invalid value {text[:20]!r}, append or truncate is allowed")


def exclusive(text: str) -> bool:
    """Parse --exclusive of a job: no other job runs beside the job."""
    if text:
        raise ValueError(f"Invalid value {text[:20]!r}, only --exclusive alone is known")
    return True


def user_env(text: str) -> float:
    """Return the seconds to wait for the login's environment; sbatch's letter for the kind of login is dropped."""
    from nodectl.client.login_environment import DEADLINE  # few jobs ask for it

    digits = text.upper().rstrip("LS")
    return count(digits) if digits else DEADLINE


def _row(  # the columns of the table
    long: str,
    short: str,
    arginfo: str,
    help: str,  # noqa: A002  # the column's name in every such table
    take: "Callable[[str], object]",
    *,
    dest: str = "",
    has_arg: int = ARGUMENT,
) -> "Row":
    return long, short, arginfo, help, take, has_arg, dest or long.replace("-", "_")


def yes_or_no(text: str) -> bool:
    """Parse yes or no."""
    if text.lower() not in ("yes", "no"):
        raise ValueError(f"Invalid value {text[:20]!r}, yes or no is allowed")
    return text.lower() == "yes"


def signal(text: str) -> str:
    """Return the signal for the job before the time limit."""
    from nodectl.model.warning import warning_of  # few jobs ask for it

    return str(warning_of(text))


def signal_of_run(text: str) -> str:
    """Return the signal for the tasks of a run before the time limit. A run has no script."""
    found = signal(text)
    if found.startswith("B:"):
        raise ValueError(f"Invalid signal {text[:40]!r}, B: is for the scripts of jobs")
    return found


def mail_type(text: str) -> str:
    """Return the events of --mail-type as typed."""
    from nodectl.model import notice  # few jobs ask for it

    notice.mail_types(text)
    return text


def mail_user(text: str) -> str:
    """Return the addresses of --mail-user as typed."""
    from nodectl.model import notice

    notice.addresses(text)
    return text


def yes(_text: str) -> bool:
    """Parse a switch: True."""
    return True


def no(_text: str) -> bool:
    """Parse a switch which turns an option off: False."""
    return False


_WAITING = (
    _row("begin", "b", "TIME", "not before: now+1hour, 16:00, tomorrow, 2026-12-24T18:00", moment),
    _row("comment", "", "TEXT", "words for `nodectl queue` and `acct`", str),
    _row("constraint", "C", "FEATURES", "features that the machine has to have, with & between them", str),
    _row("contiguous", "", "", "nodes side by side", yes, has_arg=NO_ARGUMENT),
    _row("deadline", "", "TIME", "given up if it cannot end by then", moment),
    _row("dependency", "d", "LIST", "after other jobs: afterok:7:8, afterany:, afternotok:, after:, aftercorr:, "
           "singleton, or expand:7 to give job 7 more; a job may be last; ',' means all of them, '?' any", str),
    _row("hold", "H", "", "does not start before `nodectl release`", yes, has_arg=NO_ARGUMENT),
    _row("mail-type", "", "LIST", "events of which a mail tells: BEGIN, END, FAIL, REQUEUE, IDLE, TIME_LIMIT, "
           "TIME_LIMIT_50, _80, _90, or ALL for the first five; of an array as a whole, or with ARRAY_TASKS of each "
           "task", mail_type),
    _row("mail-user", "", "ADDRESSES", "who gets these mails (the job's user)", mail_user),
    _row("nice", "", "N", f"priority lower by N ({_NICE})", nice, has_arg=MAYBE_ARGUMENT),
    _row("notify", "", "COMMAND", "line of shell, run at its begin, its end, 80 % of its time limit, and when it is "
           "queued again; NODECTL_EVENT tells which", str),
    _row("oversubscribe", "s", "", "CPUs may be shared with other jobs, where the node permits it", yes,
           has_arg=NO_ARGUMENT),
    _row("priority", "", "N", "this priority; admins only", priority),
    _row("qos", "q", "NAME", "quality of service", str),
    _row("reservation", "", "NAME", "in this reservation", str),
)  # fmt: skip
_IMMEDIATE = _row(
    "immediate", "I", "SECONDS", "ends if nothing is free at once, or within so many seconds", immediate,
    has_arg=MAYBE_ARGUMENT,
)  # fmt: skip
RUN = (
    *_WAITING,
    _IMMEDIATE,
    _row("signal", "", "SIGNAL", "SIGNAL[@SECONDS]: for its tasks, so many seconds (60) before the time limit",
           signal_of_run),
)  # fmt: skip
_EXCLUSIVE = _row("exclusive", "", "", "no other job beside it", exclusive, has_arg=MAYBE_ARGUMENT)

_SIGNAL = _row(
    "signal", "", "SIGNAL", "[B:]SIGNAL[@SECONDS]: for the steps, with B: for the script alone, so many seconds (60) "
    "before the time limit", signal,
)  # fmt: skip
_QUIET = _row("quiet", "Q", "", "say only what went wrong", yes, has_arg=NO_ARGUMENT)

SUBMIT = (
    _row("array", "a", "LIST", "a job for each index: 0-15, 1,3,5, 0-100:10; %N behind it: N at a time", array),
    _row("error", "e", "FILE", "stderr; default: where stdout goes", user_file, dest="stderr"),
    _EXCLUSIVE,
    _row("get-user-env", "", "SECONDS", "adds the environment of your login, which may take so many seconds (8); so do "
           "--export=NONE and a list without ALL", user_env, has_arg=MAYBE_ARGUMENT),
    _row("input", "i", "FILE", "stdin; default: /dev/null", user_file, dest="stdin"),
    _row("kill-on-invalid-dep", "", "yes|no", "ends when what it depends on cannot happen any more", yes_or_no),
    _row("no-requeue", "", "", "is not started a second time", no, dest="requeue", has_arg=NO_ARGUMENT),
    _row("open-mode", "", "append|truncate", "what is done with files of output that are there", open_mode),
    _row("output", "o", "FILE", "stdout: a pattern (%j job, %A array, %a index, %x name, %u user); default: "
           "slurm-%j.out, of arrays slurm-%A_%a.out", user_file, dest="stdout"),
    _row("parsable", "", "", "print the job's number alone", yes, has_arg=NO_ARGUMENT),
    _row("requeue", "", "", "may be started a second time", yes, has_arg=NO_ARGUMENT),
    _QUIET,
    _SIGNAL,
    _row("test-only", "", "", "tell when it would start; submit nothing", yes, has_arg=NO_ARGUMENT),
    _row("wait", "W", "", "end with the job, with its exit status", yes, has_arg=NO_ARGUMENT),
    _row("wrap", "", "COMMAND", "submit this line of shell instead of a script", str),
    *_WAITING,
)  # fmt: skip
_OF_A_SCRIPT = ("wrap", "get-user-env")  # what a job that is submitted once more has already
RESUBMIT = (
    _row("failed", "", "", "of an array only the tasks that failed; another job only if it failed", yes,
           has_arg=NO_ARGUMENT),
    *(row for row in SUBMIT if row[0] not in (*_OF_A_SCRIPT, "test-only")),
)  # fmt: skip
ALLOC = (
    _EXCLUSIVE,
    _IMMEDIATE,
    _row("kill-command", "K", "SIGNAL", "signal for the command when the job has ended (TERM)", str,
           has_arg=MAYBE_ARGUMENT),
    _row("no-shell", "", "", "end at once; the job stays until it is cancelled", yes, has_arg=NO_ARGUMENT),
    _QUIET,
    _SIGNAL,
    *_WAITING,
)  # fmt: skip
