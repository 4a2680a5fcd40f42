"""`python3 -m nodectl.cli.manual DIR`: the manual pages into DIR/man1, man5 and man7; with --markdown into DIR as *.md.

SOURCE_DATE_EPOCH, if set, is the date on the pages.
"""

import argparse
import os
import time

from nodectl.cli.manual import commands, markdown, roff, subjects
from nodectl.cli.manual.document import Page
from nodectl.client import whole_file

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def main() -> int:
    """Write the pages."""
    parser = argparse.ArgumentParser(prog="python3 -m nodectl.cli.manual", description="Write the manual.")
    parser.add_argument("--markdown", action="store_true", help="write Markdown instead of roff")
    parser.add_argument("directory", metavar="DIR", help="where it goes; made where there is none")
    arguments = parser.parse_args()
    os.makedirs(arguments.directory, exist_ok=True)
    for name, text in (as_markdown() if arguments.markdown else as_roff()).items():
        _write(arguments.directory, name, text)
    return 0


def _write(directory: str, name: str, text: str) -> None:
    """Write a page. Follow no link below `directory`: root may write into a directory of a user's. Raises OSError."""
    section, name = os.path.split(name)
    at = os.open(directory, _DIRECTORY)
    try:
        if section:
            above, at = at, _subdirectory(at, section)
            os.close(above)
        whole_file.write(at, name, 0o666 & ~_umask(), [text.encode("utf-8")])
    finally:
        os.close(at)


def _subdirectory(directory: int, name: str) -> int:
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        pass
    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def as_roff() -> dict[str, str]:
    """Return the text of each page by file name, in roff."""
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())))
    return {f"man{page.section}/{page.name}.{page.section}": roff.written(page, date) for page in _pages()}


def as_markdown() -> dict[str, str]:
    """Return the text of each page by file name, in Markdown."""
    pages = _pages()
    names = frozenset(markdown.file_name(page.title) for page in pages)
    return {markdown.file_name(page.title): markdown.written(page, names) for page in pages}


def _pages() -> list[Page]:
    return [*commands.pages(), *subjects.pages()]


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"  # Python 3.14 would colour usages on a terminal
    raise SystemExit(main())
