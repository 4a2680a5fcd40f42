"""`nodectl plugins`: what it says of plugins, by looking at their files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nodectl.cli import doctor, main, plugin_list
from nodectl.model import launch_order
from nodectl.plugin_host import plugin_facts
from nodectl.plugin_host.kinds import KINDS
from nodectl.service.config_file import reader
from nodectl.spank import plugstack

HEAD = 'plugin_type = "spank"\nplugin_name = "mark"\nplugin_version = (22, 5, 8)\n'


def write(tmp_path: Path, text: str, name: str = "spank/mark.py") -> str:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def test_hooks_are_listed_in_the_order_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["plugins", "--hooks"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1] for row in rows[1 : len(launch_order.HOOKS) + 1]] == [
        hook.call for hook in launch_order.HOOKS
    ]
    assert any("task_p_add_pid" in row for row in rows[len(launch_order.HOOKS) :])
    assert main.main(["plugins", "--hooks", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["place"] for row in found["hooks"]] == list(range(1, len(launch_order.HOOKS) + 1))
    assert found["elsewhere"] == {kind.name: kind.uncalled for kind in KINDS.values() if kind.uncalled}
    assert found["suspension"] == ["task_p_slurmd_suspend_job", "task_p_slurmd_resume_job"]


def test_only_what_is_never_called_is_listed_as_that(capsys: pytest.CaptureFixture[str]) -> None:
    """Plans, which task/affinity is made of, stood there; and so did all of a select plugin's functions."""
    assert main.main(["plugins", "--hooks"]) == 0
    called, never = capsys.readouterr().out.split("\nAccepted in plugins, and never called:\n")
    assert [line.strip() for line in never.splitlines()] == [
        "task_p_add_pid", "task_p_update_mem_limit", "proctrack_p_find", "proctrack_p_has_pid", "proctrack_p_get_pids",
    ]  # fmt: skip
    for kind in KINDS.values():
        assert all(call in called or call in never for call in kind.functions), kind.name
    assert "task_p_pre_launch_plan       in the stepd" in called
    assert "task_p_slurmd_batch_request  a failure: the job waits, and is tried again" in called


def test_plugins_are_described_without_being_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trap = tmp_path / "executed"
    body = f"open({str(trap)!r}, 'w')\ndef slurm_spank_init(sp, ac, av): pass\nspank_options = [SpankOption('mark')]\n"
    write(tmp_path, f'"""mark: leaves a mark.\n\nMore."""\n{HEAD}{body}')
    stack = write(tmp_path, "required mark a=1\noptional absent\nnonsense\n", "plugstack.conf")
    path = write(tmp_path, f'plugin_dir = "{tmp_path}"\nplugstack_config = "{stack}"\n', "nodectl.toml")
    assert main.main(["--config", path, "plugins"]) == 0
    text = capsys.readouterr().out
    assert "required    mark  22.5.8\n      leaves a mark.\n" in text
    assert f"{stack}:1: a=1" in text
    assert "hooks: slurm_spank_init\n      options: --mark" in text
    assert "optional    absent  MISSING" in text
    assert "available   renice" in text
    assert f"warning: {stack}:3: line begins with 'nonsense'" in text
    assert main.main(["--config", path, "plugins", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plugins"]
    assert not trap.exists()


def test_compiled_plugins_are_described_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spank").mkdir()
    source = write(
        tmp_path,
        """
        #include <slurm/spank.h>
        SPANK_PLUGIN(greeter, 1);
        struct spank_option spank_options[] = {{"greet", "WHO", "says hello", 1, 0, NULL}, SPANK_OPTIONS_TABLE_END};
        int slurm_spank_task_init(spank_t sp, int ac, char **av) { (void)sp, (void)ac, (void)av; return 0; }
        """,
        "greeter.c",
    )
    assert main.main(["plugins", "--include"]) == 0
    include = capsys.readouterr().out.strip()
    for library in ("spank/stacked.so", "spank/spare.so"):
        subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", "-o", tmp_path / library, source], check=True)
    stack = write(tmp_path, "required stacked.so\n", "plugstack.conf")
    path = write(tmp_path, f'plugin_dir = "{tmp_path}"\nplugstack_config = "{stack}"\n', "nodectl.toml")
    assert main.main(["--config", path, "plugins"]) == 0
    text = capsys.readouterr().out
    for role, name in (("required ", "stacked"), ("available", "spare")):
        assert f"{role}   greeter  22.5.8\n" in text
        assert f"{tmp_path}/spank/{name}.so\n      hooks: slurm_spank_task_init\n      options: --greet" in text


def test_missing_configured_plugin_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, 'task_plugin = "task/absent"\n', "nodectl.toml")
    assert main.main(["--config", path, "plugins"]) == 1
    assert "configured  task/absent  MISSING" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "def slurm_spank_inti(*a): pass\ndef slurm_spank_exit(*a): pass\n",
            "4: slurm_spank_inti is unknown; nearest is slurm_spank_init",
        ),
        ("def slurm_spank_exit(sp): pass\n", "4: slurm_spank_exit takes 1 parameter(s); it is called with 3"),
        ("async def slurm_spank_exit(sp, ac, av): pass\n", "4: slurm_spank_exit must not be async"),
        (
            "def task_p_pre_launch(step): pass\ndef slurm_spank_exit(*a): pass\n",
            "4: task_p_pre_launch belongs in a task",
        ),
        ("plugin_version = '22'\ndef slurm_spank_exit(*a): pass\n", "4: plugin_version is '22'"),
        ("x = 1\n", " spank plugin without any slurm_spank function"),
        ("def (\n", "4: syntax error"),
        (
            "plugin_version = (21, 8, 0)\ndef slurm_spank_exit(*a): pass\n",
            "4: written for version 21.8.0; this is 22.5",
        ),
        ("plugin_type = 'task/x'\ndef slurm_spank_exit(*a): pass\n", "4: plugin_type is 'task/x'"),
    ],
)
def test_problems_of_a_plugin_are_found_by_looking(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path, HEAD + text)
    found = plugin_facts.read(path, "spank").problems
    assert len(found) == 1
    assert found[0].startswith(f"{path}:{problem}")


def test_a_plugin_is_called_by_its_type_and_its_name_and_what_it_imports_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = 'plugin_type = "task/nice"\nplugin_name = "task niceness"\nplugin_version = 0x160508\n'
    future = "def task_p_of_the_future(step): pass\n"
    write(tmp_path, f'"""task/nice: nice tasks."""\nfrom . import helper\n{head}{future}', "task/nice.py")
    write(tmp_path, '"""What task/nice needs."""\ndef helps(): pass\n', "task/helper.py")
    path = write(tmp_path, f'plugin_dir = "{tmp_path}"\ntask_plugin = "task/nice"\n', "nodectl.toml")
    assert main.main(["--config", path, "plugins"]) == 0
    text = capsys.readouterr().out
    assert "  configured  task/nice (task niceness)  22.5.8\n      nice tasks.\n" in text
    assert "warning: " + str(tmp_path) + "/task/nice.py:6: task_p_of_the_future is unknown and never called; " in text
    told = [
        check for check in doctor.plugin_checks(reader.load(path, must_exist=True)) if "of_the_future" in check.detail
    ]
    assert [check.level for check in told] == ["warn"]
    assert "helper" not in text.replace(str(tmp_path), "")


def test_built_in_plugins_have_no_problems() -> None:
    listed = [
        *plugin_list.node_plugins(reader.build({})),
        *plugin_list.spank_plugins(reader.build({}), plugstack.Plugstack((), ())),
    ]
    assert len(listed) > 5
    assert not [problem for one in listed for problem in one.facts.problems]
    assert all(one.facts.about for one in listed)
