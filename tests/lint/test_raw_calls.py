"""What a task calls that shares its stepd's memory: the kernel, and of libc what keeps, locks and allocates nothing.

The compiler puts each function into a section of its own, and its relocations say what it takes from elsewhere.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from lint.test_c_sources import FLAGS, KERNEL_C
from needs import need

pytestmark = pytest.mark.lint

BEGIN = "begin"  # in launch.c: where such a task begins
# Of libc: what changes nothing but what it is given, and clock_gettime(2), which the kernel maps into each process.
NEEDS_NOTHING = {
    "clock_gettime", "memchr", "memcmp", "memcpy", "memmove", "mempcpy", "memset", "stpcpy", "strchr", "strcmp",
    "strcpy", "strerrordesc_np", "strlen", "strncmp", "strrchr",
}  # fmt: skip
# A fork's memory is its own: become_user() asks which it is.
OF_A_FORK = {"become_user": {"__errno_location", "setgroups", "setresgid", "setresuid"}}
NO_CODE = (".debug", ".eh_frame", ".note", ".comment")


class Objects:
    """Compiled files: where each function is, and what each section refers to."""

    def __init__(self, sources: Sequence[Path], scratch: Path) -> None:
        flags = [*FLAGS, "-O2", "-ffunction-sections", "-fdata-sections"]
        subprocess.run(["cc", *flags, "-c", *sources], cwd=scratch, check=True)
        self.places: dict[str, tuple[str, str]] = {}  # of names that other files may use
        self.uses: dict[tuple[str, str], set[str]] = {}
        for source in sources:
            name = f"{source.stem}.o"
            command = ["objdump", "-t", "-r", name]
            listing = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=True).stdout
            self._read(name, listing.splitlines())

    def _read(self, file: str, lines: list[str]) -> None:
        local: dict[str, str] = {}
        section = ""
        for line in lines:
            words = line.split()
            if line.startswith("RELOCATION RECORDS FOR"):
                section = words[-1].strip("[]:")
            elif section and len(words) == 3 and words[0] != "OFFSET" and not section.startswith(NO_CODE):
                target = words[2].partition("+")[0].partition("-0x")[0]
                self.uses.setdefault((file, section), set()).add(local.get(target, target))
            elif not section and "\t" in line and (place := line.partition("\t")[0].split()[-1]).startswith("."):
                if words[1] == "l":
                    local[words[-1]] = place
                else:
                    self.places[words[-1]] = (file, place)

    def reached(self, file: str, section: str) -> dict[tuple[str, str], set[str]]:
        """What of other files' each section takes that can be reached from this one and is in none of the files."""
        found: dict[tuple[str, str], set[str]] = {}
        waiting = [(file, section)]
        while waiting:
            place = waiting.pop()
            if place in found:
                continue
            found[place] = set()
            for name in self.uses.get(place, ()):
                if name.startswith("."):
                    waiting.append((place[0], name))
                elif name in self.places:
                    waiting.append(self.places[name])
                else:
                    found[place].add(name)
        return found


def foreign(objects: Objects, file: str, begin: str) -> set[str]:
    """Whatever is called from there on and must not be."""
    found = set()
    for (_, section), names in objects.reached(file, f".text.{begin}").items():
        found |= names - NEEDS_NOTHING - OF_A_FORK.get(section.removeprefix(".text."), set())
    return found


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    need("cc", "objdump")
    return Objects(sorted(KERNEL_C.glob("*.c")), tmp_path_factory.mktemp("objects"))


def test_a_task_that_shares_memory_calls_the_kernel_and_nothing_else(objects: Objects) -> None:
    assert foreign(objects, "launch.o", BEGIN) == set()


def test_the_check_sees_all_that_a_task_does(objects: Objects) -> None:
    reached = {section for _, section in objects.reached("launch.o", f".text.{BEGIN}")}
    operations = ("carry_out", "become_user", "bind_cpus", "confine_to", "connect_stream", "lock_files", "write_row")
    assert {f".text.{name}" for name in operations} <= reached
    assert ".text.start" not in reached, "what the stepd does is not the task's"


def test_the_check_would_notice(tmp_path: Path) -> None:
    """Also behind another function, in another file, in a table."""
    need("cc", "objdump")
    (tmp_path / "one.c").write_text(
        "int setuid(unsigned); int setgid(unsigned); int puts(const char *); void other(void);\n"
        "static __attribute__((noinline)) void inner(void) { setuid(1); }\n"
        "static int (*const volatile table[])(unsigned) = {setgid};\n"
        "void begin(void) { inner(); other(); table[0](1); }\n"
        'void not_reached(void) { puts(""); }\n'
    )
    (tmp_path / "other.c").write_text(
        "void *malloc(unsigned long); void *volatile got; void other(void) { got = malloc(7); }\n"
    )
    objects = Objects([tmp_path / "one.c", tmp_path / "other.c"], tmp_path)
    assert foreign(objects, "one.o", "begin") == {"setuid", "setgid", "malloc"}
