"""The manual says what `--help`, the table of keys, the launch and the socket's file say, and man(1) can show it."""

from __future__ import annotations

import re
import shlex
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

import nodectl.model.wire
from needs import lacks
from nodectl.bulk.options import BulkParser
from nodectl.cli import bind
from nodectl.cli.catalogue import commands, parser_of
from nodectl.cli.manual.__main__ import as_markdown, as_roff, main
from nodectl.cli.manual.commands import texts
from nodectl.client.job_parser import JobParser
from nodectl.client.srun import help as run_help
from nodectl.kernel.log.table import MESSAGES
from nodectl.model.exit_statuses import of_command
from nodectl.model.launch_order import HOOKS
from nodectl.service.config_file.all_keys import KEYS

PAGES = as_roff()
COMMANDS = commands()
EXAMPLES = texts("EXAMPLES")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def plain(page: str) -> str:
    """The text of a page without its requests, fonts and escapes."""
    text = re.sub(r"^\.\S+ ?", "", PAGES[page], flags=re.MULTILINE)
    text = re.sub(r"\\f[BIR]|\\:|\\&", "", text)
    return text.replace(r"\-", "-").replace(r"\(aq", "'").replace(r"\(dq", '"').replace(r"\e", "\\")


def help_of(command: str) -> str:
    if not COMMANDS[command].reads_words:
        return parser_of(COMMANDS[command]).format_help()
    if command in ("submit", "resubmit", "alloc"):
        return JobParser(command).help()
    return {"run": lambda: run_help.text(()), "bulk": BulkParser().help, "bind": bind._help}[command]()


def options(text: str) -> set[str]:
    return set(OPTION.findall(text)) - {"--help"}


@pytest.mark.parametrize("command", list(COMMANDS))
def test_page_of_a_command_has_every_option_of_its_help(command: str) -> None:
    listed = re.findall(r"^ +(?:-\w, )?--[a-z].*|^ +-\w.*", help_of(command), re.MULTILINE)
    assert options("\n".join(listed)) <= options(plain(f"man1/nodectl-{command}.1"))


@pytest.mark.parametrize("command", list(COMMANDS))
def test_page_of_a_command_has_every_exit_status(command: str) -> None:
    told = " ".join(plain(f"man1/nodectl-{command}.1").partition("EXIT STATUS")[2].split())
    for status, meaning in of_command(command):
        assert re.search(rf"{re.escape(status)} {re.escape(meaning)}\.", told, re.IGNORECASE)


def test_no_page_is_left_of_a_command_that_is_gone() -> None:
    named = {Path(page).stem.removeprefix("nodectl-") for page in PAGES if page.startswith("man1/nodectl-")}
    assert named == COMMANDS.keys()
    assert {*texts("DESCRIPTIONS"), *EXAMPLES, *texts("SEE")} <= {"nodectl", *named}


def test_every_key_of_the_configuration_is_told_with_its_default() -> None:
    text = " ".join(plain("man5/nodectl.toml.5").split())
    missing = [key.name for key in KEYS if f" {key.name} {' '.join(key.help.replace('`', '').split())}" not in text]
    assert not missing
    assert not [key.name for key in KEYS if f"Default: {' '.join(key.default_text().split())}." not in text]


def test_every_hook_of_a_launch_is_told_in_its_order() -> None:
    told = re.findall(r"^\.TP\n\\fB([a-z_]+)\\fR$", PAGES["man7/nodectl-plugins.7"], re.MULTILINE)
    calls = [hook.call for hook in HOOKS]
    assert any(told[start : start + len(calls)] == calls for start in range(len(told)))


def test_every_declaration_of_the_socket_is_told_with_its_comment() -> None:
    text = plain("man7/nodectl.varlink.7")
    for file in ("org.nodectl.varlink", "org.nodectl.step.varlink"):
        source = (Path(next(iter(nodectl.model.wire.__path__))) / file).read_text()
        for kind, name in re.findall(r"^(method|type|error) (\w+)", source, re.MULTILINE):
            assert f"\n{kind} {name}" in text
        for comment in re.findall(r"^# (\S+ \S+ \S+ \S+)", source, re.MULTILINE):
            assert comment in " ".join(text.split())


@pytest.mark.parametrize("command", sorted(EXAMPLES))
def test_examples_name_commands_and_options_that_there_are(command: str) -> None:
    for _, text in EXAMPLES[command]:
        words = shlex.split(text)
        if "nodectl" in words:
            name = words[words.index("nodectl") + 1]
            assert name in COMMANDS
            spank_option = {"--nofile"}
            assert options(" ".join(words)) - spank_option <= options(plain(f"man1/nodectl-{name}.1"))


def test_pages_refer_to_pages_that_there_are() -> None:
    known = {f"{Path(page).stem}({Path(page).suffix[1:]})" for page in PAGES}
    pages = "".join(PAGES.values()).replace(r"\-", "-")
    referred = {f"{name}({section})" for name, section in re.findall(r"^\.BR (\S+) \((\d)\)", pages, re.MULTILINE)}
    assert referred <= known


@pytest.mark.skipif(lacks("groff"), reason="no groff here: ./dev setup as root installs it")
def test_groff_formats_every_page_without_a_warning(tmp_path: Path) -> None:
    for page, text in PAGES.items():
        shown = subprocess.run(
            ["groff", "-ww", "-man", "-Tutf8"], input=text, text=True, capture_output=True, check=False
        )
        assert (page, shown.returncode, shown.stderr) == (page, 0, "")
        assert " - " in shown.stdout


@pytest.mark.skipif(lacks("mandoc"), reason="no mandoc here: ./dev setup as root installs it")
def test_mandoc_has_nothing_to_complain_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["manual", str(tmp_path)])
    assert main() == 0
    files = sorted(map(str, tmp_path.glob("man?/*")))
    assert len(files) == len(PAGES)
    found = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", *files], text=True, capture_output=True, check=False
    )
    assert found.stdout == ""


def test_pages_are_the_same_when_they_are_made_again_on_another_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    first = as_roff()
    assert first == as_roff()
    assert " 2001-09-09 " in first["man1/nodectl.1"]


def test_uninstall_takes_every_page_away_and_no_other_programs() -> None:
    script = (Path(__file__).resolve().parents[3] / "systemd/uninstall").read_text(encoding="utf-8")
    patterns = re.findall(r'"\$manual"/(\S+)', script)
    assert not [page for page in PAGES if not any(fnmatch(page, pattern) for pattern in patterns)]
    assert not [
        one
        for one in ("man1/node.1", "man5/slurm.conf.5", "man7/spank.7")
        if any(fnmatch(one, pattern) for pattern in patterns)
    ]


def test_links_of_the_markdown_lead_to_pages() -> None:
    pages = as_markdown()
    linked = {name for text in pages.values() for name in re.findall(r"\]\((\S+?\.md)\)", text)}
    assert linked
    assert linked <= pages.keys()


def test_page_of_the_log_has_every_message_with_its_number() -> None:
    text = plain("man7/nodectl-log.7")
    for name, number, *_ in MESSAGES:
        assert name in text
        assert number in text


def test_pages_are_written_into_the_directory_and_nowhere_that_a_link_in_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory may be another user's than who writes, who may be root."""
    victim, manual = tmp_path / "victim", tmp_path / "manual"
    victim.mkdir()
    (victim / "kept").write_text("precious")
    (manual / "man1").mkdir(parents=True)
    (manual / "man1" / "nodectl-run.1").symlink_to(victim / "kept")
    monkeypatch.setattr("sys.argv", ["manual", str(manual)])
    assert main() == 0
    assert (victim / "kept").read_text() == "precious"
    assert (manual / "man1" / "nodectl-run.1").read_text() == PAGES["man1/nodectl-run.1"]
    (manual / "man5").rename(tmp_path / "moved")
    (manual / "man5").symlink_to(victim)
    with pytest.raises(NotADirectoryError):
        main()
    assert [path.name for path in victim.iterdir()] == ["kept"]
