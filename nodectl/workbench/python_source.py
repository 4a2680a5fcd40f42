"""What a SPANK plugin written in Python says in its source: see `inspection`. It is compiled and parsed, not run."""

import ast
from collections.abc import Iterator

from nodectl import spank
from nodectl.cli import plugin_facts
from nodectl.workbench.inspection import ERROR, PREFIX, Finding, Inspection, Offered, misspelt

_FIELDS = ("name", "arginfo", "usage", "has_arg", "val", "cb")


def read(path: str) -> Inspection:
    """Looks at the source file. Raises OSError."""
    facts = plugin_facts.read(path, "spank")
    found = Inspection(
        path, "python", facts.name, facts.type, facts.version, facts.about, list(facts.hooks),
        findings=[Finding(ERROR, problem) for problem in facts.problems],
    )  # fmt: skip
    with open(path, "rb") as file:
        text = file.read()
    try:
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found  # told among the facts
    lines = {node.name: node.lineno for node in tree.body if isinstance(node, plugin_facts.Function)}
    for name, words in misspelt(name for name in lines if not name.startswith(PREFIX)):
        found.error(words, lines[name])
    found.options = list(_options(tree))
    for name, line in sorted(_imported(tree).items()):
        found.needs[name] = "nodectl" if hasattr(spank, name) else ""
        if not found.needs[name]:
            found.error(f"needs {name}, which nodectl.spank does not provide", line)
    return found


def _options(tree: ast.Module) -> Iterator[Offered]:
    """SpankOption(...) wherever it stands; those in the list spank_options are the table."""
    table = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and "spank_options" in _targets(node) and node.value is not None
    ]
    static = {id(call) for value in table for call in ast.walk(value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node.func) == "SpankOption":
            given = dict(zip(_FIELDS, node.args, strict=False))
            given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
            values = {name: _literal(value) for name, value in given.items()}
            has_arg = values.get("has_arg")
            if isinstance(name := values.get("name"), str):
                yield Offered(
                    name,
                    str(values.get("arginfo") or ""),
                    str(values.get("usage") or "") or ("?" if "usage" in given else ""),
                    has_arg if isinstance(has_arg, int) else None,
                    id(node) in static,
                )


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _called(function: ast.expr) -> str:
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


def _literal(value: ast.expr) -> object:
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _imported(tree: ast.Module) -> dict[str, int]:
    """The names of nodectl.spank that the plugin uses, each with a line."""
    names: dict[str, int] = {}
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "nodectl.spank":
            names |= {alias.name: node.lineno for alias in node.names if alias.name != "*"}
        elif isinstance(node, ast.ImportFrom) and node.module == "nodectl":
            modules |= {alias.asname or alias.name for alias in node.names if alias.name == "spank"}
        elif isinstance(node, ast.Import):
            modules |= {alias.asname for alias in node.names if alias.name == "nodectl.spank" and alias.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            names.setdefault(node.attr, node.lineno)
    return names
