"""--multi-prog: a file which maps tasks to programs, "0-3,7 program args" or "* program args" on each line.

Lines may continue after a backslash; quotes are a shell's, '#' begins a comment. The service interprets %t and %o.
"""

from nodectl.client import batch_script
from nodectl.client.command import BadOption
from nodectl.client.srun import text_file


def read(path: str, given: "list[str]") -> list[list[object]]:
    """Return the rows of the request: tasks and argv. Raises BadOption.

    `given`: words after the file, which go to every program.
    """
    rows: list[list[object]] = []
    for number, line in enumerate(text_file.read(path, "--multi-prog:").replace("\\\n", "").split("\n"), 1):
        try:
            words = batch_script.split(line)
        except ValueError as error:
            raise BadOption(f"--multi-prog: {path!r}: line {number}: {error}") from None
        if not words:
            continue
        if len(words) == 1:
            raise BadOption(f"--multi-prog: {path!r}: line {number}: no program behind {words[0]!r}")
        rows.append([words[0], [*words[1:], *given]])
    if not rows:
        raise BadOption(f"--multi-prog: {path!r}: no program in it")
    return rows
