"""Every way in which a plugin file is refused, and what a good one gives."""

from __future__ import annotations

import copy
import errno
import os
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.plugin_api import PluginError
from nodectl.plugin_host import loader
from nodectl.plugin_host.kinds import KINDS, Kind
from nodectl.plugin_host.spelling import edit_distance
from nodectl.spank.python_plugin import PythonPlugin

TASK = {"task_p_pre_setuid": 1, "task_p_pre_launch": 1, "task_p_post_term": 2}
SPANK = {"slurm_spank_init": 3, "slurm_spank_task_init": 3, "slurm_spank_exit": 3}
PROCTRACK = dict.fromkeys(KINDS["proctrack"].required, 1)
HEAD = 'plugin_type = "task/nice"\nplugin_name = "niceness"\nplugin_version = (22, 5, 8)\n'
SPANK_HEAD = HEAD.replace("task/nice", "spank")


def with_functions(name: str, functions: dict[str, int]) -> Kind:
    """The kind with these functions only."""
    kind = copy.copy(KINDS[name])
    kind.functions = functions
    return kind


HOOKS = {
    "task": with_functions("task", TASK),
    "spank": with_functions("spank", SPANK),
    "proctrack": with_functions("proctrack", PROCTRACK),
}


def write(tmp_path: Path, text: str, name: str = "nice.py") -> str:
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def load(tmp_path: Path, text: str, kind: str = "task", name: str = "nice.py") -> loader.Plugin:
    source = loader.compile_plugin(write(tmp_path, text, name))
    return loader.load(source, HOOKS[kind], PythonPlugin if kind == "spank" else loader.Plugin)


def refusal(tmp_path: Path, text: str, kind: str = "task") -> str:
    """The message, without the directory; nothing of a refused plugin stays in sys.modules."""
    before = set(sys.modules)
    with pytest.raises(loader.PluginRefused) as caught:
        load(tmp_path, text, kind)
    assert not [name for name in set(sys.modules) - before if name.startswith("nodectl_plugin")]
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{tmp_path}/")


def test_good_plugin_gives_its_hooks_and_does_not_run_init(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        HEAD + "ran = []\ndef init(): ran.append(1)\ndef task_p_pre_launch(step): return step + 1\n",
    )
    assert (loaded.type, loaded.name, loaded.version) == ("task/nice", "niceness", (22, 5, 8))
    assert set(loaded.hooks) == {"init", "task_p_pre_launch"}
    assert loaded.hooks["task_p_pre_launch"](41) == 42
    assert loaded.module.ran == []


def test_plugin_without_hooks_is_a_stub(tmp_path: Path) -> None:
    assert load(tmp_path, HEAD).hooks == {}


def test_plugin_loaded_twice_has_two_states(tmp_path: Path) -> None:
    source = loader.compile_plugin(write(tmp_path, HEAD + "state = []\n"))
    one = loader.load(source, HOOKS["task"], loader.Plugin)
    two = loader.load(source, HOOKS["task"], loader.Plugin)
    assert one.module.state is not two.module.state
    assert one.module.__name__ != two.module.__name__


def test_plugin_may_use_dataclasses_and_enums(tmp_path: Path) -> None:
    body = """
    from __future__ import annotations
    import dataclasses, enum
    @dataclasses.dataclass
    class Options:
        priority: int = 5
    class Mode(enum.Enum):
        ON = 1
    """
    assert load(tmp_path, textwrap.dedent(body) + HEAD).module.Options().priority == 5


# Finding


def test_find_takes_the_first_directory_that_has_the_file(tmp_path: Path) -> None:
    for name in ("site", "builtin"):
        (tmp_path / name / "task").mkdir(parents=True)
        (tmp_path / name / "task" / "cgroup.py").touch()
    (tmp_path / "builtin" / "task" / "affinity.py").touch()
    dirs = [str(tmp_path / "absent"), str(tmp_path / "site"), str(tmp_path / "builtin")]
    assert loader.find("task/cgroup", dirs) == f"{tmp_path}/site/task/cgroup.py"
    assert loader.find("task/affinity", dirs) == f"{tmp_path}/builtin/task/affinity.py"


def test_find_names_the_directories_that_were_searched(tmp_path: Path) -> None:
    with pytest.raises(loader.PluginRefused, match=r"task/none: no file task/none\.py in /a:/b"):
        loader.find("task/none", ["/a", "/b"])


@pytest.mark.parametrize("bad", ["", "task", "task/", "/x", "task/../x", "task/a/b", "task/a.b"])
def test_find_refuses_what_is_no_type(bad: str) -> None:
    with pytest.raises(loader.PluginRefused, match="no plugin type"):
        loader.find(bad, ["/"])


# Reading and compiling


def test_syntax_error_is_refused_with_its_line(tmp_path: Path) -> None:
    assert refusal(tmp_path, HEAD + "def broken(:\n").startswith("nice.py:4: syntax error: ")


@pytest.mark.parametrize("text", [b"\0", b"# -*- coding: klingon -*-\n", b"x = '\xff'\n"])
def test_bytes_that_are_no_python_are_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bytes.py").write_bytes(text)
    with pytest.raises(loader.PluginRefused):
        loader.compile_plugin(str(tmp_path / "bytes.py"))


def test_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(loader.PluginRefused, match="cannot be read: No such file"):
        loader.compile_plugin(str(tmp_path / "absent.py"))


def test_compiling_runs_nothing(tmp_path: Path) -> None:
    loader.compile_plugin(write(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n"))
    assert not (tmp_path / "ran").exists()


def test_future_imports_of_the_loader_are_not_the_plugins(tmp_path: Path) -> None:
    loaded = load(tmp_path, HEAD + "def helper(x: int): pass\n")
    assert loaded.module.helper.__annotations__ == {"x": int}


def test_file_that_others_can_write_is_refused_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    path = write(tmp_path, HEAD)
    os.chmod(path, 0o666)
    with pytest.raises(loader.PluginRefused, match="not trusted: "):
        loader.compile_plugin(path)


# Running the body


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("raise ValueError('no\\nlicence')", "its body raised ValueError: no licence"),
        ("raise SystemExit(3)", "its body raised SystemExit: 3"),
        ("raise KeyboardInterrupt", "its body raised KeyboardInterrupt: no message"),
        ("import absent_module", "its body raised ModuleNotFoundError: No module named"),
        ("import json; json.loads('{')", "its body raised JSONDecodeError: "),
    ],
)
def test_body_that_raises_is_refused_with_its_line(tmp_path: Path, statement: str, words: str) -> None:
    assert refusal(tmp_path, HEAD + statement + "\n").startswith(f"nice.py:4: {words}")


def test_exception_that_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    body = "class Odd(Exception):\n    def __str__(self): return 1 / 0\nraise Odd\n"
    assert refusal(tmp_path, HEAD + body) == "nice.py:6: its body raised Odd: no message"


# The plugin's own words about itself


@pytest.mark.parametrize("attribute", ["plugin_type", "plugin_name", "plugin_version"])
def test_missing_attribute_is_refused(tmp_path: Path, attribute: str) -> None:
    text = SPANK_HEAD.replace(attribute, "other")
    assert refusal(tmp_path, text, "spank") == f"nice.py: {attribute} is missing"


def test_task_plugin_may_leave_its_version_out(tmp_path: Path) -> None:
    assert load(tmp_path, HEAD.replace("plugin_version", "other")).version == ()


@pytest.mark.parametrize("value", ["(22, 5, 8)", "0x160508", "1443080", "SLURM_VERSION_NUMBER"])
def test_version_is_three_numbers_or_one(tmp_path: Path, value: str) -> None:
    text = "from nodectl.plugin_api import SLURM_VERSION_NUMBER\n" + HEAD.replace("(22, 5, 8)", value)
    assert load(tmp_path, text).version == (22, 5, 8)


def test_version_101_is_that_of_the_interface_of_job_containers(tmp_path: Path) -> None:
    text = HEAD.replace("(22, 5, 8)", "101")
    container = text.replace("task/nice", "job_container/nice")
    source = loader.compile_plugin(write(tmp_path, container))
    assert loader.load(source, KINDS["job_container"], loader.Plugin).version == (101,)
    assert refusal(tmp_path, text).startswith("nice.py:3: plugin_version is 101; ")


@pytest.mark.parametrize("value", ["7", "b'x'", "''", "'two\\nlines'"])
def test_name_that_is_no_line_of_text_is_refused(tmp_path: Path, value: str) -> None:
    message = refusal(tmp_path, HEAD.replace('"niceness"', value))
    assert message.startswith("nice.py:2: plugin_name is ")


def test_type_that_was_not_asked_for_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, HEAD.replace("task/nice", "task/other"))
    assert message == "nice.py:1: plugin_type is 'task/other'; 'task/nice' was asked for"


@pytest.mark.parametrize("said", ["spank/", "task/nice", "spanky"])
def test_spank_plugin_of_another_type_is_refused(tmp_path: Path, said: str) -> None:
    message = refusal(tmp_path, HEAD.replace("task/nice", said), "spank")
    assert message == f"nice.py:1: plugin_type is {said!r}; 'spank' is needed"


@pytest.mark.parametrize(
    "value", ["'22.05.8'", "(22, 5)", "[22, 5, 8]", "(22, 5, True)", "22", "True", "-1", "0x1160508"]
)
def test_version_of_the_wrong_shape_is_refused(tmp_path: Path, value: str) -> None:
    message = refusal(tmp_path, HEAD.replace("(22, 5, 8)", value))
    assert message.startswith("nice.py:3: plugin_version is ")
    assert message.endswith("three numbers like (22, 5, 8), or 0x160508, are needed")


@pytest.mark.parametrize(
    ("value", "said"),
    [("(23, 5, 8)", "23.5.8"), ("(22, 6, 8)", "22.6.8"), ("(22, 5, 9)", "22.5.9"), ("0x170508", "23.5.8")],
)
def test_task_plugin_of_another_version_is_refused(tmp_path: Path, value: str, said: str) -> None:
    message = refusal(tmp_path, HEAD.replace("(22, 5, 8)", value))
    assert message == f"nice.py:3: written for version {said}; this is 22.5.8"


def test_micro_version_of_a_spank_plugin_is_not_compared(tmp_path: Path) -> None:
    text = SPANK_HEAD.replace("5, 8", "5, 9") + "def slurm_spank_exit(spank, ac, av): pass\n"
    assert load(tmp_path, text, "spank").version == (22, 5, 9)
    assert "is 22.5" in refusal(tmp_path, text.replace("5, 9", "6, 8"), "spank")


# Functions


@pytest.mark.parametrize(
    ("kind", "function", "words"),
    [
        ("task", "task_p_pre_setuit(a)", "is unknown; nearest is task_p_pre_setuid"),
        ("task", "task_pre_setuid(a)", "looks like a misspelt task_p_pre_setuid; rename it"),
        ("task", "tsk_p_pre_lunch(a)", "looks like a misspelt task_p_pre_launch; rename it"),
        ("task", "slurm_spank_exit(s, c, v)", "slurm_spank_exit belongs in a spank plugin"),
        ("spank", "slurm_spank_tsk_init(s, c, v)", "nearest is slurm_spank_task_init"),
        ("spank", "slurmspank_init(s, c, v)", "looks like a misspelt slurm_spank_init"),
    ],
)
def test_misspelt_hook_is_refused(tmp_path: Path, kind: str, function: str, words: str) -> None:
    head = HEAD if kind == "task" else SPANK_HEAD
    message = refusal(tmp_path, f"{head}\n\ndef {function}: pass\n", kind)
    assert message.startswith("nice.py:6: ")
    assert words in message


def test_hook_of_the_future_is_no_reason_to_refuse_a_plugin(tmp_path: Path) -> None:
    loaded = load(tmp_path, HEAD + "\n\ndef task_p_unheard_of(a): pass\ndef task_p_pre_launch(step): pass\n")
    assert set(loaded.hooks) == {"task_p_pre_launch"}
    (warning,) = loaded.warnings
    assert str(warning).endswith("nice.py:6: task_p_unheard_of is unknown; nearest is task_p_pre_setuid")


@pytest.mark.parametrize(("kind", "head"), [("task", HEAD), ("spank", SPANK_HEAD)])
def test_what_is_imported_from_spank_is_no_hook_in_a_plugin_of_any_kind(tmp_path: Path, kind: str, head: str) -> None:
    text = "from nodectl.spank import slurm_spank_log\n" + head
    hook = "def slurm_spank_init(sp, ac, argv): pass\n" if kind == "spank" else ""
    loaded = load(tmp_path, text + hook, kind)
    assert "slurm_spank_log" not in loaded.hooks
    assert loaded.warnings == []


def test_helpers_with_ordinary_names_are_left_alone(tmp_path: Path) -> None:
    names = ("find", "wait", "ini", "_task_p_pre_launch", "task_prefix", "helper")
    body = "".join(f"def {name}(): pass\n" for name in names)
    assert load(tmp_path, HEAD + "from os.path import join\n" + body).hooks == {}


@pytest.mark.parametrize(("parameters", "takes"), [("", 0), ("a, b", 2), ("a, b, *rest", 2), ("a, b, /, c=1", 3)])
def test_wrong_number_of_parameters_is_refused(tmp_path: Path, parameters: str, takes: int) -> None:
    message = refusal(tmp_path, f"{HEAD}def task_p_pre_launch({parameters}): pass\n")
    wanted = f"task_p_pre_launch takes {takes} parameter(s); it is called with 1"
    assert message == f"nice.py:4: {wanted}"


@pytest.mark.parametrize("parameters", ["a", "*a", "a, b=1", "a, *, c=1", "a=1, **others"])
def test_parameters_that_can_be_called_are_accepted(tmp_path: Path, parameters: str) -> None:
    loaded = load(tmp_path, f"{HEAD}def task_p_pre_launch({parameters}): return 7\n")
    assert loaded.hooks["task_p_pre_launch"](1) == 7


def test_keyword_parameter_that_nobody_passes_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, f"{HEAD}def task_p_pre_launch(a, *, force): pass\n")
    assert "keyword-only parameter force" in message


def test_init_takes_no_parameters(tmp_path: Path) -> None:
    message = refusal(tmp_path, HEAD + "def init(step): pass\n")
    assert message == "nice.py:4: init takes 1 parameter(s); it is called with 0"


@pytest.mark.parametrize(
    "function",
    ["async def task_p_pre_launch(a): pass", "def task_p_pre_launch(a): yield"],
)
def test_function_whose_call_runs_nothing_is_refused(tmp_path: Path, function: str) -> None:
    message = refusal(tmp_path, HEAD + function + "\n")
    assert message == "nice.py:4: task_p_pre_launch must not be async or contain yield"


@pytest.mark.parametrize("value", ["None", "7", "print", "type('C', (), {})"])
def test_hook_that_is_no_function_is_refused(tmp_path: Path, value: str) -> None:
    message = refusal(tmp_path, f"{HEAD}task_p_pre_launch = {value}\n")
    assert message.startswith("nice.py:4: task_p_pre_launch is a ")
    assert message.endswith("a plain function is needed")


def test_proctrack_plugin_without_a_function_is_refused(tmp_path: Path) -> None:
    head = HEAD.replace("task/nice", "proctrack/nice")
    functions = [f"def {name}(a): pass\n" for name in PROCTRACK]
    assert len(load(tmp_path, head + "".join(functions), "proctrack").hooks) == len(PROCTRACK)
    message = refusal(tmp_path, head + "".join(functions[1:]), "proctrack")
    assert message == "nice.py: proctrack plugin without proctrack_p_create"


def test_spank_plugin_that_does_nothing_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, SPANK_HEAD + "def init(): pass\n", "spank")
    assert message == "nice.py: spank plugin without any slurm_spank function"


def test_failure_mode_is_a_number(tmp_path: Path) -> None:
    text = SPANK_HEAD + "def slurm_spank_init(s, c, v): pass\nslurm_spank_init_failure_mode = "
    assert load(tmp_path, text + "3012\n", "spank").module.slurm_spank_init_failure_mode == 3012
    message = refusal(tmp_path, text + "'drain'\n", "spank")
    assert message == "nice.py:5: slurm_spank_init_failure_mode is 'drain'; a number is needed"


# Distances and errors


def slow_distance(one: str, two: str) -> int:
    if not one or not two:
        return len(one) + len(two)
    rest = slow_distance(one[1:], two[1:])
    if one[0] == two[0]:
        return rest
    return 1 + min(rest, slow_distance(one[1:], two), slow_distance(one, two[1:]))


@settings(max_examples=200, deadline=None)
@given(st.text("ab_", max_size=6), st.text("ab_", max_size=6), st.integers(0, 7))
def test_edit_distance_is_that_of_the_definition(one: str, two: str, limit: int) -> None:
    assert edit_distance(one, two, limit) == min(slow_distance(one, two), limit + 1)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(sorted({**TASK, **SPANK, **PROCTRACK})))
def test_every_name_two_edits_away_is_seen(data: st.DataObject, hook: str) -> None:
    name = hook
    for _ in range(2):
        start = data.draw(st.integers(0, len(name)))
        cut = data.draw(st.integers(0, 1))
        name = name[:start] + data.draw(st.text("ab_", max_size=1)) + name[start + cut :]
    text = f"def {name}(): pass\n"
    if not name.isidentifier() or name.startswith("_") or name in {**TASK, **SPANK, **PROCTRACK}:
        return
    kind = next(kind for kind, known in HOOKS.items() if hook in known.functions)
    with tempfile.TemporaryDirectory() as directory, pytest.raises(loader.PluginRefused) as caught:
        load(Path(directory), HEAD.replace("task/nice", f"{kind}/nice") + text, kind)
    assert name in caught.value.reason


def test_plugin_error_has_a_number_and_words() -> None:
    assert str(PluginError(errno.ENOENT)) == "No such file or directory"
    assert str(PluginError(3001, "bad argument")) == "bad argument"
    assert PluginError(3001).code == 3001


@pytest.mark.parametrize("code", [0, True, None, "ENOENT"])
def test_plugin_error_without_a_number_is_refused(code: int) -> None:
    with pytest.raises(TypeError, match="an errno or a Slurm number"):
        PluginError(code)
