"""The file name patterns of -i, -o and -e: `%t`, `%j` and the rest, expanded for a task.

Pure. The rules are srun's: a backslash anywhere switches expansion off and is removed; a number between % and the
letter pads numeric fields with zeros, up to ten digits; a letter without a meaning stays, as %a does of a job that is
no task of an array.

Fields can make a name many times as long as its pattern, for each task and in the memory of the stepd. So a name ends
where it is too long for any path: it cannot be opened either way.
"""

from nodectl.model.step_number import BATCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.step import Step

_OF_CLIENT = ("", "all", "-")
_MOST_DIGITS = 10
_TOO_LONG = 4096  # bytes: PATH_MAX, which the kernel refuses
_ARRAY = 10  # %b is the task's number in an array modulo this


def expand(pattern: str, step: "Step", rank: int) -> str:
    """Return the absolute path of `pattern` for this task. Relative names begin at the step's directory."""
    name = pattern.replace("\\", "") if "\\" in pattern else _expand(pattern, step, rank)[:_TOO_LONG]
    return name if name.startswith("/") else f"{step.cwd.rstrip('/')}/{name}"


def is_file(name: str, ntasks: int) -> bool:
    """Return True for a file's name; False for a task's number and the words for no file."""
    is_task = name.isdecimal() and int(name) < ntasks
    return not (name in _OF_CLIENT or name == "none" or is_task)


def files_of(step: "Step") -> dict[str, str]:
    """Return the paths of the files to which the step's first task writes, `output` and `errors`; none for others."""
    if not step.stdout and not step.stderr:
        return {}
    patterns = {"output": step.stdout, "errors": step.stderr or step.stdout}
    rank = step.numbers[0]
    return {name: expand(text, step, rank) for name, text in patterns.items() if is_file(text, step.ntasks)}


def per_task(pattern: str) -> bool:
    """Return True when different tasks get different files."""
    return "\\" not in pattern and any(letter == "t" for _, letter, _ in _fields(pattern))


def per_node(pattern: str) -> bool:
    """Return True when tasks of different nodes get different files."""
    return "\\" not in pattern and any(letter and letter in "tNn" for _, letter, _ in _fields(pattern))


def _fields(pattern: str) -> list[tuple[str, str, str]]:
    """Return (text before, letter or "", digits between % and letter), in order."""
    found: list[tuple[str, str, str]] = []
    text, at = "", 0
    while at < len(pattern):
        if pattern[at] != "%":
            text += pattern[at]
            at += 1
            continue
        end = at + 1
        while end < len(pattern) and pattern[end] in "0123456789":
            end += 1
        letter = pattern[end : end + 1]
        if not letter:
            text += pattern[at:]
            break
        found.append((text, letter, pattern[at + 1 : end]))
        text, at = "", end + 1
    found.append((text, "", ""))
    return found


def _expand(pattern: str, step: "Step", rank: int) -> str:
    numbers = {
        "A": step.array_job or step.job_id, "j": step.job_id, "s": step.step_id, "t": rank, "n": step.nodeid,
        "r": step.restart or 0,
    }  # fmt: skip
    words = {"%": "%", "J": str(step), "N": step.node_name, "u": step.user_name, "x": step.name}
    if step.array_job:
        numbers |= {"a": step.array_task, "b": step.array_task % _ARRAY}
    if step.step_id == BATCH:
        words |= {"s": "batch", "J": str(step.job_id)}
    out = ""
    for text, letter, digits in _fields(pattern):
        out += text
        if letter in words:
            out += words[letter]
        elif letter in numbers:
            out += str(numbers[letter]).rjust(min(int(digits or 0), _MOST_DIGITS), "0")
        elif letter:
            out += f"%{digits}{letter}"
        if len(out) >= _TOO_LONG:
            break
    return out
