"""The operations of a task from birth to program, as data, carried out by C (`c/operation.c`).

An operation is (code, a, b, data, what); `what` is the message of a failure: text before and behind the system's words.
Each function here makes an operation, in the stepd before the task exists or in a fork of it, and its docstring says
what the operation does: nothing happens before `_kernel.start` or `_kernel.perform`. A failed operation ends the task
with status 1, unless its function says otherwise.
"""

import os
import sys
from _json import encode_basestring_ascii

from nodectl.kernel import _kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Operation = tuple[int, int, int, bytes, bytes]

INHERITED = b""  # stands for the program that the process was born with
_LONGEST = 700  # characters of a message
_SILENT = b"\0"
_IO_BEST_EFFORT, _IO_IDLE, _LAST_IO_LEVEL = 2 << 13, 3 << 13, 7  # IOPRIO_CLASS_*, in the kernel's place for it
_OF_SCRIPT, _NO_MAGIC, _SHARED = 16, 8, 4  # of OP_STREAM
_STREAMS = {f"/dev/{name}": number for number, name in enumerate(("stdin", "stdout", "stderr"))}


def _json(text: str) -> bytes:
    """Return the text between the quotes of a JSON string, shortened in the middle if too long."""
    found = encode_basestring_ascii(text[: 2 * _LONGEST])[1:-1]
    room = _LONGEST
    while len(found) > _LONGEST:  # a character may take six bytes, or twelve, in JSON
        room -= room // 4
        found = encode_basestring_ascii(f"{text[: room // 2]}...{text[-(room // 2) :]}")[1:-1]
    return found.encode("ascii")


def _told(before: str, behind: str = "") -> bytes:
    return b"%b\0%b" % (_json(before), _json(behind))


_CLOSES = _told("close what is open: ")


def _numbers(numbers: "Iterable[int]") -> bytes:
    return b"".join([number.to_bytes(4, sys.byteorder) for number in numbers])


def _mask(numbers: "Iterable[int]") -> bytes:
    """Return a set of CPUs or NUMA nodes in the kernel's form: whole longs."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask.to_bytes((mask.bit_length() + 63) // 64 * 8, sys.byteorder) if mask else b""


def _words(words: "Iterable[str]") -> bytes:
    """Return strings as laid out in memory, a NUL after each. Raises ValueError for a string with a NUL byte."""
    found = [os.fsencode(word) for word in words]
    data = b"\0".join([*found, b""])
    if data.count(b"\0") != len(found):
        raise ValueError("embedded null byte")
    return data


def _path(path: str) -> bytes:
    return _words((path,))[:-1]


def row(place: int, plugin: int, facts: str, hook: str = "") -> "Operation":
    """Begin a row of the launch order: the row's place in `tracing/progress.py`, and the plugin's place.

    `facts` are those of the trace's line up to the pid, "" without a trace. `hook` begins the message of a failure in
    the row.
    """
    data = facts.encode("ascii") + b"\0" if facts else b""
    return _kernel.OP_ROW, place, plugin, data, _told(hook) if hook else _SILENT


def end_row() -> "Operation":
    """End the row: write the row's line to the trace."""
    return _kernel.OP_END_ROW, 0, 0, b"", _SILENT


def join_group(leader: int) -> "Operation":
    """Join this process group; lead a new group for 0, or if the group has gone."""
    return _kernel.OP_JOIN_GROUP, leader, 0, b"", _SILENT


def new_session() -> "Operation":
    """Lead a new session, without a terminal. Not for the leader of a process group."""
    return _kernel.OP_NEW_SESSION, 0, 0, b"", _told("begin a session: ")


def controlling_terminal(fd: int) -> "Operation":
    """Make this terminal the controlling terminal of the process's session, and the process the foreground."""
    return _kernel.OP_CONTROLLING_TERMINAL, fd, 0, b"", _told("get a controlling terminal: ")


def join_namespace(fd: int, what: str, behind: str) -> "Operation":
    """Enter the namespace of this descriptor, as root.

    No time namespace, which a process that shares memory with others may not enter, and no user namespace, whose
    capabilities have no business in that memory.
    """
    return _kernel.OP_JOIN_NAMESPACE, fd, 0, b"", _told(what, behind)


def own_namespaces(kinds: int, what: str, behind: str) -> "Operation":
    """Enter new namespaces, CLONE_NEW*, as root, with the same exceptions as `join_namespace`."""
    return _kernel.OP_OWN_NAMESPACES, kinds, 0, b"", _told(what, behind)


def close(fds: "Iterable[int]") -> "Operation":
    """Close the descriptors `fds`."""
    return _kernel.OP_CLOSE, 0, 0, _numbers(fds), _SILENT


def close_others(keep: "Iterable[int]") -> "Operation":
    """Close all descriptors but 0, 1, 2 and `keep`, which the exec closes."""
    numbers = _numbers(sorted(fd for fd in keep if fd >= 0))
    return _kernel.OP_CLOSE_OTHERS, 0, 0, numbers, _CLOSES


def inherit(fd: int) -> "Operation":
    """Pass this descriptor on to the executed program: behind `close_others`, which keeps the descriptor."""
    return _kernel.OP_INHERIT, fd, 0, b"", _told("hand on a descriptor: ")


def io_priority(level: int) -> "Operation":
    """Set the priority of input and output, ioprio_set(2): 0 (first) to 7 among all that compete; 8: after all."""
    priority = _IO_IDLE if level > _LAST_IO_LEVEL else _IO_BEST_EFFORT | level
    return _kernel.OP_IO_PRIORITY, priority, 0, b"", _told("set the priority of input and output: ")


def hard_limit(resource: int, soft: int, hard: int, what: str = "") -> "Operation":
    """Set both limits of RLIMIT_*, -1 for infinity. After a failure the limit stays, and `what` precedes the reason."""
    data = b"".join([(limit % (1 << 64)).to_bytes(8, sys.byteorder) for limit in (soft, hard)])
    return _kernel.OP_HARD_LIMIT, resource, 0, data, _told(what)


def soft_limit(resource: int, wanted: int, what: str = "") -> "Operation":
    """Set the soft limit, as far as the hard limit allows. If this fails the limit stays, as with `hard_limit`."""
    return _kernel.OP_SOFT_LIMIT, resource, wanted, b"", _told(what)


def bind(cpus: "Iterable[int]", listed: str, line: "tuple[str, str, str] | None" = None) -> "Operation":
    """Bind to the CPUs `cpus` and check the result; without CPUs only check.

    `listed` is the CPUs in words. `line` is the message for the user: before the task's pid, between pid and mask,
    behind the mask.
    """
    mask = _mask(cpus)
    told = b"" if line is None else b"\0".join([*map(_json, line), b""])
    return _kernel.OP_BIND, int(line is not None), len(mask), mask + told, _told(f"bind to CPUs {listed}: ")


def memory_policy(mode: int, nodes: "Sequence[int]", listed: str) -> "Operation":
    """Set the memory policy, MPOL_* and NUMA nodes, and check the result. `listed`: the nodes in words."""
    return _kernel.OP_MEMORY_POLICY, mode, 0, _mask(nodes), _told(f"bind memory to NUMA nodes {listed}: ")


def say(before: str, behind: str) -> "Operation":
    """Write both texts, with the task's pid between, to the task's stderr."""
    return _kernel.OP_SAY, 0, 0, _words((before[:_LONGEST], behind[:_LONGEST])), _SILENT


def bound_capabilities(kept: int, what: str) -> "Operation":
    """Limit the capabilities of programs executed from now on to the mask `kept`, as root."""
    signed = kept - (1 << 64) if kept >> 63 else kept
    return _kernel.OP_BOUND_CAPABILITIES, signed, 0, b"", _told(what)


def become_user(uid: int, gid: int, gids: "Iterable[int]", behind: str = "") -> "Operation":
    """Become the user for good, and verify: groups, gids, uids, capabilities, securebits, undumpable memory."""
    return _kernel.OP_USER, uid, gid, _numbers(gids), _told("become the user: ", behind)


def die_with(parent: int) -> "Operation":
    """Have the kernel kill the process when the parent ends, and end now if the parent has ended.

    Goes after `become_user`, which undoes it.
    """
    return _kernel.OP_DIE_WITH, parent, 0, b"", _SILENT


def umask(mask: int) -> "Operation":
    """Set the umask."""
    return _kernel.OP_UMASK, mask, 0, b"", _SILENT


TAKES_ALL, ALL_STAY, LAST_TAKES_ALL = range(3)


def take_streams(socket: int, how: int) -> "Operation":
    """Take copies of the client's three descriptors out of the socket.

    With ALL_STAY they stay there for others. With TAKES_ALL this task removes them; with LAST_TAKES_ALL the last of as
    many tasks as `Progress.expect_takers` has said does, when that task has its copies too.
    """
    return _kernel.OP_TAKE_STREAMS, socket, how, b"", _told("take the streams of the client: ")


def stream(
    number: int, fd: int, path: str, *, shared: bool, of_script: bool = False, what: str, behind: str
) -> "Operation":
    """Make 0, 1 or 2 of a descriptor (-2, -3 and -4: the client's, -1: none), or of a file opened now.

    A file is emptied unless it is `shared`. No path by way of /proc leads to what the task has open, but for those of
    0, 1 and 2 that are the user's already. `of_script`: of a batch script, whose output may wait two seconds for its
    directory, and which ends as by signal 53 where it has no stream, as in Slurm.
    """
    how = number | (_SHARED if shared else 0) | (_OF_SCRIPT if of_script else 0)
    how |= _NO_MAGIC if path and _STREAMS.get(path, number) < number else 0
    return _kernel.OP_STREAM, how, fd, _path(path), _told(what, behind)


def enter_directory(path: str, what: str, behind: str) -> "Operation":
    """Enter the directory; if this fails, enter /tmp with a message."""
    return _kernel.OP_ENTER_DIRECTORY, 0, 0, _path(path), _told(what, behind)


def wait(pipe: int) -> "Operation":
    """Read a byte. At the end of the pipe the task ends with status 1 and without a message."""
    return _kernel.OP_WAIT, pipe, 0, b"", _SILENT


def default_signals(numbers: "Iterable[int]") -> "Operation":
    """Reset the signals `numbers` to the default actions, and block no signal."""
    return _kernel.OP_DEFAULT_SIGNALS, 0, 0, bytes(numbers), _SILENT


def make_tmpdir(path: str, what: str, behind: str) -> "Operation":
    """Make the directory if missing. If this fails, TMPDIR is /tmp, with a message."""
    return _kernel.OP_MAKE_TMPDIR, 0, 0, _path(path), _told(what, behind)


def no_root_here(why: str) -> "Operation":
    """Fail if the working directory is /."""
    return _kernel.OP_NO_ROOT_HERE, 0, 0, b"", _told(why)


def confine(program: bytes, what: str) -> "Operation":
    """Set no_new_privs and load the filter of system calls, seccomp(2). INHERITED: check for both."""
    return _kernel.OP_CONFINE, 0, 0, program, _told(what)


def lock_files(dirs: "Iterable[str]", last: str, everything: int, into_files: int, what: str) -> "Operation":
    """Forbid writing except beneath `dirs`, and into files beneath `last`: rights of landlock(7)."""
    return _kernel.OP_LOCK_FILES, everything, into_files, _words((*dirs, last)), _told(what)


def fail(why: str, status: int) -> "Operation":
    """End the task with this status."""
    return _kernel.OP_FAIL, status, 0, b"", _told(why)


def environment(variables: "Mapping[str, str]") -> "Operation":
    """Add variables to the program's environment. Raises ValueError for an illegal variable.

    SLURM_TASK_PID is filled in where it is empty.
    """
    text = "\0".join([f"{name}={value}" for name, value in variables.items()] + [""])
    if text.count("\0") != len(variables) or "" in variables or "=" in "".join(variables):
        raise ValueError("illegal environment variable")
    return _kernel.OP_ENVIRONMENT, 0, 0, os.fsencode(text), _SILENT


def argv(words: "Iterable[str]") -> "Operation":
    """Set the program's argv. Raises ValueError."""
    return _kernel.OP_ENVIRONMENT, 1, 0, _words(words), _SILENT


def execute(candidates: "Sequence[str]", *, is_path: bool, what: str, behind: str) -> "Operation":
    """Write the begun row, and execute the first candidate found.

    `is_path`: the user gave a path, else a name to search for. A failure ends the task with the errno as its status.
    """
    return _kernel.OP_EXECUTE, int(is_path), 0, _words(candidates), _told(what, behind)
