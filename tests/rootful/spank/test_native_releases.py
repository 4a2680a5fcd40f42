"""Plugins compiled for other releases of Slurm, and what plugins are told of jobs, in every process of a node."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from rootful.native import INCLUDE
from rootful.node import NOBODY, PATIENCE, Node, running, wait_until

NEWEST, UNKNOWN = 0x1A0502, 0x1A0B00
SOURCE = """
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdlib.h>
const char plugin_name[] = "other", plugin_type[] = "spank";
const unsigned int plugin_version = {version}, spank_plugin_version = 1;

static int told(const char *hook, int ac, char **av)
{{
    FILE *file = ac > 0 ? fopen(av[0], "a") : NULL;
    if (file == NULL)
        return 0;
    fprintf(file, "%d %s\\n", (int)spank_context(), hook);
    return fclose(file);
}}
#define HOOK(name) int slurm_spank_##name(spank_t sp, int ac, char **av) {{ (void)sp; return told(#name, ac, av); }}
HOOK(init)
HOOK(job_prolog)
HOOK(slurmd_exit)

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{{
    const char *words[] = {{"sh", "-c", "echo before; exec \\"$@\\"", "sh"}};
    (void)ac;
    (void)av;
    return spank_prepend_task_argv(sp, 4, words);
}}
"""


def place(node: Node, version: int) -> None:
    """A plugin that says it was compiled for this version."""
    source, library = node.dir / "other.c", node.dir / "other.so.new"
    source.write_text(SOURCE.format(version=version), encoding="ascii")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{INCLUDE}", "-o", library, source], check=True)
    (node.plugins / "spank").mkdir(exist_ok=True)
    library.replace(node.plugins / "spank" / "other.so")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as started:
        yield started


def test_plugin_of_the_newest_release_runs_in_every_context(node: Node) -> None:
    place(node, NEWEST)
    told = node.scratch / "told"
    told.touch(mode=0o666)
    told.chmod(0o666)
    node.plugstack(f"required other.so {told}\n")
    node.restart()
    done = node.run("echo", "after", user=NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "before\nafter\n", "")
    node.stop()
    lines = told.read_text(encoding="ascii").splitlines()
    assert sorted(lines) == ["1 init", "2 init", "4 init", "4 slurmd_exit", "5 job_prolog"]
    node.start()


def test_plugin_of_a_release_that_nobody_knows_is_refused_unless_the_key_has_it(node: Node) -> None:
    place(node, UNKNOWN)
    node.plugstack("required other.so\n")
    refused = node.run("true", user=NOBODY)
    assert refused.returncode == 1
    assert "built for Slurm 26.11.0; spank_versions has 22.05-26.05" in refused.stderr
    node.plugstack("")
    node.stop()
    node.configure(spank_versions="26.11")
    node.start()
    node.plugstack("required other.so\n")
    assert node.run("echo", "after", user=NOBODY).stdout == "before\nafter\n"
    node.configure(spank_versions="22.05-26.05")
    node.plugstack("")
    node.restart()


ASKS = """
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdlib.h>
SPANK_PLUGIN(asks, 1)

static void ask(spank_t sp, const char *variable, uint32_t id)
{
    job_info_msg_t *answer = NULL;
    char text[200];
    errno = 0;
    if (slurm_load_job(&answer, id, SHOW_ALL))
        snprintf(text, sizeof text, "none %d", errno == ESLURM_INVALID_JOB_ID);
    else
        snprintf(text, sizeof text, "%u %s %s %u", answer->job_array->job_id, answer->job_array->name,
                 answer->job_array->nodes, answer->job_array->user_id);
    slurm_free_job_info_msg(answer);
    if (spank_remote(sp))
        spank_setenv(sp, variable, text, 1);
    else
        setenv(variable, text, 1);
}

int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    uint32_t own = 0;
    (void)ac;
    (void)av;
    spank_get_item(sp, S_JOB_ID, &own);
    ask(sp, "LOCAL", own);
    return 0;
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    uint32_t own = 0;
    if (!spank_remote(sp))
        return 0;
    spank_get_item(sp, S_JOB_ID, &own);
    ask(sp, "OWN", own);
    ask(sp, "OTHER", ac > 0 ? (uint32_t)atoi(av[0]) : 0);
    ask(sp, "NONE", 4000000);
    return 0;
}
"""


def test_plugin_is_told_of_the_jobs_of_this_node(node: Node) -> None:
    source = node.dir / "asks.c"
    source.write_text(ASKS, encoding="ascii")
    library = node.plugins / "asks.so"
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{INCLUDE}", "-o", library, source], check=True)
    host = str(node.call("Hello")["node"])
    other = node.popen("-J", "other", "sleep", "1000", user=NOBODY)
    try:
        wait_until(lambda: node.call("List")["steps"], "the other job runs")
        job = node.last_job()
        node.plugstack(f"required {library} {job}\n")
        done = node.run(
            "-J", "mine", "sh", "-c", 'echo "$LOCAL"; echo "$OWN"; echo "$OTHER"; echo "$NONE"', user=NOBODY
        )
        assert (done.returncode, done.stderr) == (0, "")
        own = f"{job + 1} mine {host} {NOBODY.pw_uid}"
        assert done.stdout.splitlines() == [own, own, f"{job} other {host} {NOBODY.pw_uid}", "none 1"]
    finally:
        other.terminate()
        other.communicate(timeout=PATIENCE)
        node.plugstack("")


def test_option_that_two_plugins_of_one_name_offer_is_told_with_their_files(node: Node) -> None:
    table = "#include <slurm/spank.h>\nSPANK_PLUGIN(same, 1)\nspank_f slurm_spank_init;\n"
    table += "int slurm_spank_init(spank_t sp, int ac, char **av) { return 0; }\n"
    table += 'struct spank_option spank_options[] = {{"same", 0, "Same.", 0, 0, 0}, SPANK_OPTIONS_TABLE_END};\n'
    libraries = [node.plugins / f"{name}.so" for name in ("one", "two")]
    source = node.dir / "same.c"
    source.write_text(table, encoding="ascii")
    for library in libraries:
        subprocess.run(["cc", "-shared", "-fPIC", f"-I{INCLUDE}", "-o", library, source], check=True)
    node.plugstack("".join(f"required {library}\n" for library in libraries))
    done = node.run("true", user=NOBODY)
    one, two = libraries
    assert f'option "same" provided by both same ({one}) and same ({two})' in done.stderr
    node.plugstack("")
