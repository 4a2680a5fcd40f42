"""Stacks of nothing but compiled plugins, which a stepd walks in C: each call is bounded, blamed and traced as every
other.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rootful.hook_faults import HOOK_SECONDS, LATE
from rootful.native import native
from rootful.node import NOBODY, Node, running

ADD = 'char t[64]; t[0] = 0; spank_getenv(sp, "SAID", t, 64); strcat(t, {}); spank_setenv(sp, "SAID", t, 1);'
MARK = "if (spank_remote(sp)) {{ " + ADD.format('"{}"') + " }}"
ECHO = ("sh", "-c", 'echo "$SAID"')


@pytest.fixture
def node() -> Iterator[Node]:
    """A node of the test's own, whose hooks have `HOOK_SECONDS` each."""
    with running(spank_hook_timeout=HOOK_SECONDS) as started:
        yield started


def stack(node: Node, *bodies: str, role: str = "optional", text: str = "", hook: str = "init") -> None:
    """Plugins a, b, c, ... with these bodies of their hook."""
    lines = []
    for name, body in zip("abcdef", bodies, strict=False):
        native(node, name, text, **{hook: body})
        lines.append(f"{role} {name}.so {name}1 {name}2\n")
    node.plugstack("".join(lines))


def rows(node: Node, call: str) -> list[tuple[str, int]]:
    """Plugin and return code of the hook's lines in the trace of the last step."""
    job = node.call("List", ended=1)["steps"][0]["job"]  # type: ignore[index]
    trace = node.call("Trace", job=job, step=0)["trace"]
    return [(row["plugin"], row["rc"]) for row in trace if row["call"] == f"slurm_spank_{call}"]  # type: ignore[attr-defined]


def test_every_plugin_is_called_in_order_with_its_own_arguments_and_traced(node: Node) -> None:
    body = "if (spank_remote(sp)) {{ if (ac != 2) return 7; {} av[0][0] = 0; }}"
    stack(node, *[body.format(ADD.format("av[0]"))] * 3, role="required")
    for _ in range(2):  # what a step's plugin does to its arguments is the step's
        assert node.run(*ECHO, user=NOBODY).stdout == "a1b1c1\n"
    assert rows(node, "init") == [("a", 0), ("b", 0), ("c", 0)]


def test_the_failure_of_an_optional_plugin_does_not_end_the_walk(node: Node) -> None:
    stack(node, MARK.format("a"), MARK.format("b") + "if (spank_remote(sp)) return 3;", MARK.format("c"))
    done = node.run("-vv", *ECHO, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "abc\n"), done.stderr
    assert "warning: optional plugin b: slurm_spank_init: returned 3" in done.stderr
    assert rows(node, "init") == [("a", 0), ("b", 3), ("c", 0)]


def test_the_failure_of_a_required_plugin_ends_it_there(node: Node) -> None:
    stack(node, "", "if (spank_remote(sp)) return -1;", "", role="required")
    done = node.run("true", user=NOBODY)
    assert done.returncode == 1
    assert "plugin b: slurm_spank_init: returned -1" in done.stderr
    assert rows(node, "init") == [("a", 0), ("b", -1)]


@pytest.mark.parametrize("hook", ["init", "task_init"])
def test_a_plugin_that_takes_too_long_is_blamed_and_the_next_have_their_own_time(node: Node, hook: str) -> None:
    slow = "struct timespec s = {5, 0}; if (spank_remote(sp)) while (nanosleep(&s, &s) != 0);"
    stack(node, "", slow, "", slow, MARK.format("e") if hook == "init" else "", text="#include <time.h>\n", hook=hook)
    done = node.run("-vv", *ECHO, user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert [word for word, rc in rows(node, hook) if rc != 0] == ["b", "d"]
    assert len(rows(node, hook)) == 5
    assert done.stderr.count(LATE) == 2


def test_a_plugin_that_blocks_or_takes_the_clocks_signal_does_not_stop_the_clock(node: Node) -> None:
    blocks = (
        "sigset_t s; sigfillset(&s); if (spank_remote(sp)) { sigprocmask(SIG_BLOCK, &s, 0); signal(SIGALRM, SIG_IGN); }"
    )
    hangs = "if (spank_remote(sp)) for (;;) pause();"
    stack(node, blocks, hangs, MARK.format("c"))
    done = node.run("-vv", *ECHO, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "c\n"), done.stderr
    assert rows(node, "init") == [("a", 0), ("b", -1), ("c", 0)]


def test_whoever_leaves_a_thread_is_blamed(node: Node) -> None:
    text = "static void *wait_on(void *a) { for (;;) pause(); return a; }\n"
    leaves = "pthread_t t; if (spank_remote(sp)) pthread_create(&t, 0, wait_on, 0);"
    for role, status in (("required", 1), ("optional", 0)):
        stack(node, "", leaves, "", role=role, text=text)
        done = node.run("true", user=NOBODY)
        assert done.returncode == status
        assert "plugin b: slurm_spank_init: left a thread running" in done.stderr


def test_a_child_that_comes_out_of_a_hook_walks_no_further(node: Node) -> None:
    count = f'FILE *f = fopen("{node.scratch}/count", "a"); if (spank_remote(sp)) fputs("x", f); fclose(f);'
    stack(node, "if (spank_remote(sp)) fork();", count, role="required")
    assert node.run("true", user=NOBODY).returncode == 0
    assert (node.scratch / "count").read_text(encoding="ascii") == "x"


def test_the_clock_runs_for_the_hooks_after_one_whose_child_goes_on_in_its_place(node: Node) -> None:
    leaves = "pid_t child = fork(); if (child > 0) waitpid(child, NULL, 0);"
    stack(node, leaves, "for (;;) pause();", MARK.format("c"), text="#include <sys/wait.h>\n", hook="task_init")
    done = node.run("-vv", *ECHO, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "c\n"), done.stderr
    assert f"plugin b: slurm_spank_task_init: {LATE}" in done.stderr


def test_an_alarm_that_a_plugin_sends_is_no_overrun_of_the_hook_that_runs_then(node: Node) -> None:
    rings = "if (spank_remote(sp) && fork() == 0) { usleep(100000); kill(getppid(), SIGALRM); _exit(0); }"
    waits = "int status; if (spank_remote(sp)) while (wait(&status) < 0 && errno == EINTR) {} "
    text = "#include <errno.h>\n#include <signal.h>\n#include <sys/wait.h>\n"
    stack(node, rings, waits + MARK.format("b"), text=text, role="required")
    done = node.run(*ECHO, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "b\n"), done.stderr


def test_options_are_those_of_the_plugin_that_asks(node: Node) -> None:
    table = (
        "static int given(int v, const char *a, int r) {{ (void)v; (void)a; (void)r; return 0; }}\n"
        'struct spank_option spank_options[] = {{{{"{0}", 0, "{0}", 1, 0, given}}, SPANK_OPTIONS_TABLE_END}};\n'
    )
    body = "char *v; if (spank_option_getopt(sp, spank_options, &v) == 0) {" + ADD.format("v") + "}"
    for name in "ab":
        native(node, name, table.format(f"opt{name}"), task_init=body)
    node.plugstack("required a.so\nrequired b.so\n")
    done = node.run("--opta=1", "--optb=2", *ECHO, user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stderr


def test_a_stack_that_changes_is_made_ready_anew(node: Node) -> None:
    stack(node, MARK.format("a"), MARK.format("b"))
    assert node.run(*ECHO, user=NOBODY).stdout == "ab\n"
    node.plugstack("required b.so\nrequired a.so\nrequired b.so\n")
    assert node.run(*ECHO, user=NOBODY).stdout == "bab\n"
    native(node, "a", init=MARK.format("A"))
    assert node.run(*ECHO, user=NOBODY).stdout == "bAb\n"
    node.plugstack("")
    assert node.run(*ECHO, user=NOBODY).stdout == "\n"
