"""The configuration's table, its defaults and each refusal."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nodectl
from nodectl.cli.config import explain
from nodectl.model.config import Config, ConfigError
from nodectl.plugin_host import BUILTIN_DIR
from nodectl.service.config_file import reader
from nodectl.service.config_file.all_keys import KEYS


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "nodectl.toml"
    path.write_text(text)
    return reader.load(str(path), must_exist=True)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"{tmp_path}/nodectl.toml: ")


def test_table_and_typed_attributes_have_the_same_names() -> None:
    names = [key.name for key in KEYS]
    assert len(set(names)) == len(names)
    assert list(Config.__annotations__) == names  # in the same order, which is the one of `nodectl config`


def test_keys_of_a_section_stand_together() -> None:
    sections = [key.section for key in KEYS]
    changes = sum(one != two for one, two in itertools.pairwise(sections))
    assert changes == len(set(sections)) - 1


def test_every_default_passes_its_own_check() -> None:
    defaults = reader.build({})
    for key in KEYS:
        value = getattr(defaults, key.name)
        given_value = list(value) if isinstance(value, tuple) else "" if value is None else value
        assert key.parser.read(given_value) == value


def test_missing_file_gives_the_defaults_unless_it_must_exist(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.toml")
    assert reader.load(absent, must_exist=False) == reader.build({})
    with pytest.raises(ConfigError, match=r"^configuration /.*/absent\.toml: No such file"):
        reader.load(absent, must_exist=True)


def test_defaults_of_paths_and_plugins() -> None:
    made = reader.build({"node_name": "n1"})
    assert made.socket == "/run/nodectl/nodectl.sock"
    assert made.plugin_dir == (BUILTIN_DIR,)
    assert made.task_plugin == ("task/cgroup", "task/affinity")
    assert (made.task_prolog, made.kill_wait, made.trace) == (None, 30, True)


def test_node_name_is_the_hosts_name_up_to_its_first_dot() -> None:
    assert reader.build({}).node_name == os.uname().nodename.partition(".")[0]


def test_values_of_the_file_are_taken(tmp_path: Path) -> None:
    made = load(
        tmp_path,
        'runtime_dir = "/run/other/"\nplugin_dir = "/a:/b/:/a"\ntask_plugin = "task/x, task/y"\n'
        'trace = false\nkill_wait = 0\ntask_prolog = "/p"\ntask_epilog = ""\n',
    )
    assert (made.runtime_dir, made.socket) == ("/run/other", "/run/other/nodectl.sock")
    assert made.plugin_dir == ("/a", "/b", BUILTIN_DIR)
    assert made.task_plugin == ("task/x", "task/y")
    assert (made.trace, made.kill_wait) == (False, 0)
    assert (made.task_prolog, made.task_epilog) == ("/p", None)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('max_time = "1-0"', 86_400),
        ('max_time = "1h30m"', 5400),
        ('max_time = "2:00:00"', 7200),
        ('kill_wait = "90s"', 90),
        ('max_memory_per_user = "2G"', 2048),
        ('max_script_size = "1M"', 1 << 20),
        ("max_time = 60", 60),
    ],
)
def test_times_and_amounts_are_written_as_on_the_command_line(tmp_path: Path, line: str, value: int) -> None:
    assert dict(load(tmp_path, line))[line.partition(" ")[0]] == value


@pytest.mark.parametrize("line", ['max_time = "60"', 'max_time = "soon"', 'max_memory_per_user = "2X"',
                                  'max_jobs_per_user = "2G"', 'kill_wait = "9999999h"'])  # fmt: skip
def test_a_text_without_a_unit_or_beyond_the_limits_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=line.partition(" ")[0]):
        load(tmp_path, line)


def test_words_are_taken_in_any_case_and_lists_of_cpus_in_any_order() -> None:
    made = reader.build(
        {
            "select_type_parameters": "cr_core_memory, CR_CORE_DEFAULT_DIST_BLOCK",
            "task_plugin_param": ["AutoBind=Cores"],
            "cpu_spec_list": "3,0-1",
            "gres": "Name=gpu File=/dev/null",
        }
    )
    assert made.select_type_parameters == ("CR_Core_Memory", "CR_CORE_DEFAULT_DIST_BLOCK")
    assert (made.task_plugin_param, made.cpu_spec_list) == (("autobind=cores",), "0-1,3")
    assert made.gres == ("Name=gpu File=/dev/null",)


def test_builtin_plugins_are_searched_last_wherever_they_are_listed() -> None:
    made = reader.build({"plugin_dir": [BUILTIN_DIR, "/site"]})
    assert made.plugin_dir == ("/site", BUILTIN_DIR)


def test_configuration_cannot_be_changed() -> None:
    made = reader.build({})
    with pytest.raises(AttributeError, match="cannot be changed: trace"):
        made.trace = False


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("kil_wait = 3", "kil_wait: unknown key; did you mean kill_wait?"),
        ("zzzzzz = 3", "zzzzzz: unknown key; `nodectl config --explain` has all"),
        ("[steps]\nkill_wait = 3", "steps: unknown section; keys are written without sections"),
        ('"a\\nb" = 3', "'a\\nb': unknown key; `nodectl config --explain` has all"),
    ],
)
def test_unknown_key_is_refused(tmp_path: Path, line: str, message: str) -> None:
    assert refusal(tmp_path, line) == message


@pytest.mark.parametrize(
    ("line", "wrong", "allowed"),
    [
        ('kill_wait = "30"', "is a string", "a number of seconds from 0 to 1000000"),
        ("kill_wait = true", "is a truth value", "a number of seconds from 0 to 1000000"),
        ("kill_wait = 1.5", "is a decimal number", "a number of seconds from 0 to 1000000"),
        ("kill_wait = -1", "is -1", "a number of seconds from 0 to 1000000"),
        ("kill_wait = 1979-05-27", "is a date or time", "a number of seconds from 0 to 1000000"),
        ("trace = 1", "is a whole number", "true or false"),
        ('runtime_dir = "run"', "is 'run', a relative path", "an absolute path"),
        ('runtime_dir = ""', "is '', a relative path", "an absolute path"),
        ('state_dir = "/a\\u0000b"', "holds a NUL character", "an absolute path"),
        ("state_dir = []", "is a list", "an absolute path"),
        ('task_prolog = "p.sh"', "is 'p.sh', a relative path", "the absolute path of a program, "),
        ('plugin_dir = "/a:b"', "is 'b', a relative path", "absolute paths, as a list or "),
        ("plugin_dir = [1]", "is a whole number", "absolute paths, as a list or "),
        ('spank_versions = "22.5"', "has '22.5', which is no release", "one release of Slurm as "),
        ('spank_versions = "24.05-23.11"', "is '24.05-23.11', which ends before it begins", "one release of Slurm as "),
        ("task_plugin = {}", "is a section", "types that begin with 'task/'"),
        ('task_plugin = "cgroup"', "has 'cgroup'", "types that begin with 'task/'"),
        ('task_plugin = ["task/../x"]', "has 'task/../x'", "types that begin with 'task/'"),
        ('task_plugin = "task/a,task/a"', "names a plugin twice", "types that begin with 'task/'"),
        ('proctrack_type = "task/x"', "has 'task/x'", "one type that begins with 'proctrack/'"),
        ('node_name = "a b"', "is 'a b'", "letters, digits, "),
        ('cgroup_name = ".."', "is '..'", "letters, digits, "),
        ('cgroup_name = "a/b"', "is 'a/b'", "letters, digits, "),
        ('select_type_parameters = "CR_Core,CR_Thread"', "has 'cr_thread'", "words of CR_CPU, "),
        ('cpu_spec_list = "0-x"', "CPU list: '0-x' is not a number or a range", 'CPU numbers and ranges as "0-3,8"'),
        ("core_spec_count = -1", "is -1", "a number of cores from 0 to 65535"),
        (
            'gres = "Name=gpu Colour=red"',
            "has 'Name=gpu Colour=red': 'Colour=red' is none of name, type, file, "
            "multiplefiles, cores, count, memory, uuid, autodetect, flags, links with its value",
            "lines of words Name=",
        ),
        ('admin_group = ""', "is ''", "letters, digits, "),
    ],
)
def test_value_that_is_not_allowed_is_refused(tmp_path: Path, line: str, wrong: str, allowed: str) -> None:
    name = line.partition(" ")[0]
    assert refusal(tmp_path, line).startswith(f"{name}: {wrong}; allowed: {allowed}")


def test_socket_that_the_kernel_could_not_bind_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, f'runtime_dir = "/{"x" * 100}"')
    assert message == "socket: has 114 bytes; allowed: an absolute path of at most 103 bytes"


def test_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "kill_wait 3\n").startswith("no TOML: ")
    assert refusal(tmp_path, f"kill_wait = {'9' * 5000}\n").startswith("no TOML: ")
    said = refusal(tmp_path, "# mine\nconstrain_ram_space = yes\n")
    assert said.endswith(', constrain_ram_space = yes: words stand in quotation marks, as in key = "yes"')
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="no TOML"):
        reader.load(str(tmp_path / "bytes"), must_exist=True)


def test_file_that_cannot_be_read_is_refused_even_if_it_may_be_absent(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        reader.load(str(tmp_path), must_exist=False)


@pytest.mark.parametrize("what", ["nodectl.toml", "."])
def test_root_refuses_a_file_or_directory_that_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    load(tmp_path, "")
    (tmp_path / what).chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "not trusted: " in refusal(tmp_path, "")


def test_explanation_is_a_file_that_gives_the_same_configuration(tmp_path: Path) -> None:
    made = reader.build({"task_prolog": '/a "quoted" \\ \t path', "history_limit": 7})
    assert reader.build(tomllib.loads(explain(made))) == made
    assert tomllib.loads(explain()) == {}


def test_explanation_names_every_key_with_its_default() -> None:
    text = explain()
    for key in KEYS:
        assert key.name in text
        assert key.help in text
        assert key.default_text() in text


def test_tomllib_is_imported_only_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "there.toml").write_text("")
    root = os.path.dirname(os.path.dirname(nodectl.__file__))
    program = (
        f"import sys; sys.path.insert(0, {root!r}); from nodectl.service.config_file import reader;"
        "reader.load(sys.argv[1], must_exist=False); print('tomllib' in sys.modules)"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", program, str(tmp_path / name)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for name in ("absent.toml", "there.toml")
    ]
    assert answers == ["False", "True"]


SCALAR = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=8))


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([key.name for key in KEYS]) | st.text(max_size=6),
        SCALAR | st.lists(SCALAR, max_size=3),
        max_size=2,
    )
)
def test_any_values_are_a_configuration_or_a_clean_refusal(values: dict[str, object]) -> None:
    refused = ""
    try:
        reader.build(values)
    except ConfigError as error:
        refused = str(error)
    assert not refused or refused.startswith("configuration: ")
