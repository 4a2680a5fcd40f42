"""What the vm ring types: the commands of README and the guides. Checked here, because the ring types them rarely."""

from __future__ import annotations

import ast
import inspect

import pytest

from vm import pages, test_readme
from vm.reader import NOT_HERE, README, followed

pytestmark = pytest.mark.lint


def test_every_command_of_the_pages_is_followed_or_named_with_a_reason() -> None:
    printed = {
        (page, title): lines for page in (README, *pages.guides()) for title, lines in pages.commands(page).items()
    }
    assert {section for section, lines in printed.items() if not set(lines) <= set(NOT_HERE)} == followed
    assert set(NOT_HERE) <= {line for lines in printed.values() for line in lines}


def test_each_follower_takes_as_many_commands_as_its_section_has() -> None:
    tree = ast.parse(inspect.getsource(test_readme))
    wrong = []
    for function in (one for one in tree.body if isinstance(one, ast.FunctionDef)):
        taken = [one.targets[0] for one in function.body if isinstance(one, ast.Assign) and _is_printed(one.value)]
        for page, title in (section for one in function.decorator_list for section in _sections(one)):
            lines = [line for line in pages.commands(page)[title] if line not in NOT_HERE]
            for names in (one.elts for one in taken if isinstance(one, ast.Tuple)):
                if len(names) != len(lines) and not any(isinstance(name, ast.Starred) for name in names):
                    wrong.append(f"{function.name}: {len(names)} of {len(lines)}: {lines}")
    assert not wrong, "\n".join(wrong)


def _is_printed(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "printed"


def _sections(decorator: ast.expr) -> list[tuple[str, str]]:
    """Pages and titles, of `follows` or `big_machine`."""
    if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Name):
        return []
    given = ast.fix_missing_locations(ast.Expression(ast.Tuple(decorator.args, ast.Load())))
    if decorator.func.id == "big_machine":
        return [eval(compile(given, "sections", "eval"), vars(test_readme))]  # noqa: S307  # our own source
    if decorator.func.id == "follows":
        return list(eval(compile(given, "sections", "eval"), vars(test_readme)))  # noqa: S307
    return []
