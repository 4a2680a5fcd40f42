"""slurm_load_job: what compiled plugins are told of the jobs of this node."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from native.host import INCLUDE, compiled, lines, run
from needs import need
from nodectl.spank import S_CTX_JOB_SCRIPT, S_CTX_LOCAL
from packages import unpacked

BOTH_HEADERS = pytest.mark.parametrize("headers", ["ours", pytest.param("Debian's", marks=pytest.mark.packages)])
RELEASES = ("22.05", "23.02", "24.11", "25.11", "26.05")  # as in spank/c/job.c
OWN = 4000000001
NO_SUCH_JOB = ["load -1 errno 2017 answer 0", "No such job on this node"]
TOLD = [
    "load 0 errno 0 answer 1",
    "records 1 recent 1",
    f"job {OWN} state 1 user 2001 me group 2002 name its name",
    "nodes n1 1 index 0 0 -1 cpus 6 tasks 2 each 3 partition batch",
    "limit 2 start 1700000000 end 1700000090 submitted 1700000000",
    "memory 512 gres gpu:2 tres cpu=6,mem=512M,node=1,billing=6,gres/gpu=2",
    "command /bin/true in /srv out out_%j account NULL licenses NULL details 0 0 required 0 0",
    "cluster here batch 1 restarts 3 array 3999999999_7 flags 3",
]


@BOTH_HEADERS
def test_plugin_is_told_of_its_own_job_and_of_no_job_that_is_not_here(headers: str, tmp_path: Path) -> None:
    """Debian's header may be that of any release whose record is known."""
    plugin = compiled(tmp_path, "jobs", include=INCLUDE if headers == "ours" else slurms_headers())
    printed = lines(run(plugin, "slurm_spank_init", "slurm_spank_exit", argv=["1", "4294967294"]))
    told = [line.removesuffix(" flags 3") for line in printed[1:9]]
    assert told == [line.removesuffix(" flags 3") for line in TOLD]
    assert printed[9:] == [
        *NO_SUCH_JOB, *NO_SUCH_JOB, "= slurm_spank_init 0 ", "nowhere -1", "= slurm_spank_exit 0 ",
    ]  # fmt: skip
    if headers == "ours":
        assert printed[8] == TOLD[-1]


def slurms_headers() -> Path:
    """Those of the packages, where their release is one of which the record is known."""
    packages = unpacked()
    if packages.version[:5] not in RELEASES:
        pytest.skip(f"the record of Slurm {packages.version} is not known")
    return packages.include()


def test_job_in_its_epilog_is_completing(tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "jobs"), "slurm_spank_job_epilog", context=S_CTX_JOB_SCRIPT))
    assert printed[3] == TOLD[2].replace("state 1", f"state {3 | 0x8000}")


def test_there_is_no_job_before_the_command_has_one(tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "jobs"), "slurm_spank_init", job=False, context=S_CTX_LOCAL, argv=["1"]))
    assert printed[1:] == [*NO_SUCH_JOB, "= slurm_spank_init 0 "]


def test_plugin_of_a_release_whose_record_we_do_not_know_is_refused_and_not_misled(tmp_path: Path) -> None:
    plugin = compiled(tmp_path, "jobs", "-DRELEASE=0x170b03")
    printed = lines(run(plugin, "slurm_spank_init"))
    assert printed[1:] == ["load -1 errno 95 answer 0", "Operation not supported", "= slurm_spank_init 0 "]


def test_plugin_of_23_02_finds_the_members_where_its_compiler_has_put_them(tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "record"), "slurm_spank_init"))
    assert printed[1:] == [
        f"job {OWN} state 1 user 2001 me name its name",
        "nodes n1 cpus 6 tasks 2 each 3 partition batch",
        "limit 2 start 1700000000 submitted 1700000000",
        "memory 512 tres cpu=6,mem=512M,node=1,billing=6,gres/gpu=2",
        "command /bin/true in /srv out out_%j flags 1",
        "array 3999999999_7 batch 1 restarts 3",
        "= slurm_spank_init 0 ",
    ]


def offsets(names: list[str], include: Path, tmp_path: Path) -> dict[str, tuple[int, int]]:
    """Where the compiler puts members of struct job_info, and how large they are; the whole is "" at 0."""
    rows = [f'    printf("{name} %zu %zu\\n", offsetof(slurm_job_info_t, {name}), sizeof x.{name});' for name in names]
    source = tmp_path / "layout.c"
    head = "#include <slurm/slurm.h>\n#include <stddef.h>\nstatic slurm_job_info_t x;\nint main(void)\n{"
    source.write_text("\n".join([head, *rows, '    printf("0 %zu\\n", sizeof x);', "}\n"]), encoding="ascii")
    subprocess.run(["cc", f"-I{include}", "-o", str(tmp_path / "layout"), str(source)], check=True)
    told = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout.splitlines()
    found = zip(["", *names], [told[-1], *told[:-1]], strict=True)
    return {name: (int(line.split()[-2]), int(line.split()[-1])) for name, line in found}


@pytest.mark.packages
def test_our_record_is_laid_out_as_debians_header_lays_it_out(tmp_path: Path) -> None:
    """What an unmodified plugin has compiled in: the place of each member."""
    header = (INCLUDE / "slurm" / "slurm.h").read_text(encoding="ascii")
    body = header.partition("typedef struct job_info {")[2].partition("} slurm_job_info_t;")[0]
    names = [word.split()[-1].lstrip("*") for line in body.split(";")[:-1] for word in line.split(",")]
    if unpacked().release != (22, 5):
        pytest.skip("ours is the record of 22.05")
    assert len(names) > 130
    assert offsets(names, INCLUDE, tmp_path) == offsets(names, unpacked().include(), tmp_path)


@pytest.mark.parametrize("headers", ["ours", pytest.param("Debian's", marks=pytest.mark.packages)])
def test_members_are_put_where_the_compiler_of_the_plugin_looks(headers: str, tmp_path: Path) -> None:
    release = "22.05" if headers == "ours" else unpacked().version[:5]
    include = INCLUDE if headers == "ours" else slurms_headers()
    place = RELEASES.index(release)
    source = (Path(__file__).parents[2] / "nodectl" / "spank" / "c" / "job.c").read_text(encoding="ascii")
    table = re.findall(r'\{"(\w+)", (\w+), \{([\d, ]+)\}\}', source)
    at = [(name, kind, int(places.split(", ")[place])) for name, kind, places in table]
    there = [(name, kind, offset) for name, kind, offset in at if offset and not name.startswith("step_")]
    found = offsets([name for name, _, _ in there], include, tmp_path)
    sizes = {"NUMBER_16": 2, "NUMBER_32": 4}
    first = {name: (offset, sizes.get(kind, 8)) for name, kind, offset in reversed(there)}
    assert len(first) > 40
    assert {name: row for name, row in found.items() if name} == first
    assert re.findall(r"\{(?:0x[0-9a-f]{4}|WITH_STEP), (\d+)\}", source)[place] == str(found[""][1])


@pytest.mark.parametrize("words", [(), ("-DWITH_SEMICOLON",)], ids=["without", "with"])
def test_what_plugins_take_from_slurms_headers_is_in_ours(words: tuple[str, ...], tmp_path: Path) -> None:
    printed = lines(run(compiled(tmp_path, "header", *words), "slurm_spank_init"))
    assert printed[1].startswith("= slurm_spank_init 3012 ")
    assert printed[1].endswith("returned -1; the plugin calls it a failure of the job")


@pytest.mark.parametrize("standard", ["-std=c++11", "-std=c++17"])
def test_headers_are_for_cxx_too(standard: str, tmp_path: Path) -> None:
    source = tmp_path / "plugin.cc"
    source.write_text(
        "#include <slurm/slurm.h>\n#include <slurm/spank.h>\nSPANK_PLUGIN(cxx, 1)\n"
        'extern "C" int slurm_spank_init(spank_t sp, int ac, char **av) { return 0; }\n'
    )
    need("c++")
    command = ["c++", standard, "-Wall", "-Werror", "-shared", "-fPIC", f"-I{INCLUDE}"]
    subprocess.run([*command, "-o", str(tmp_path / "plugin.so"), str(source)], check=True)
    assert lines(run(str(tmp_path / "plugin.so"), "slurm_spank_init"))[-1] == "= slurm_spank_init 0 "
