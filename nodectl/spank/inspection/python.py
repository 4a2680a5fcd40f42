"""Inspection of the source of a SPANK plugin written in Python: see `inspection`. Compiles and parses; executes
nothing.
"""

import ast
import inspect
from collections.abc import Iterator

from nodectl import spank
from nodectl.plugin_host import plugin_facts
from nodectl.spank.inspection.findings import ERROR, PREFIX, PRINTS, WARNING, Finding, Inspection, Offered, misspelt

_SPELT = ("spank_", "slurm_", "S_", "ESPANK_", "SPANK_", "Spank")
_FIELDS = ("name", "arginfo", "usage", "has_arg", "val", "cb")


def read(path: str) -> Inspection:
    """Inspect the source file. Raises OSError."""
    with open(path, "rb") as file:
        text = file.read()
    facts = plugin_facts.of_text(path, text, "spank")
    found = Inspection(
        path, "python", facts.name, facts.type, facts.version, facts.about, list(facts.hooks),
        findings=[
            *(Finding(ERROR, problem) for problem in facts.problems),
            *(Finding(WARNING, warning) for warning in facts.warnings),
        ],
    )  # fmt: skip
    try:
        tree = ast.parse(text, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found  # the facts have the error
    lines = {node.name: node.lineno for node in tree.body if isinstance(node, plugin_facts.Function)}
    for name, words in misspelt(name for name in lines if not name.startswith(PREFIX)):
        found.error(words, lines[name])
    found.options = list(_options(tree))
    own = _Names(tree)
    for name, line in sorted(own.used.items()):
        found.needs[name] = "nodectl" if hasattr(spank, name) else ""
        if not found.needs[name]:
            found.error(f"needs {name}, which nodectl.spank does not provide", line)
    for call in sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda node: node.lineno):
        _check_call(found, call, own.meant(call.func))
    return found


def _check_call(found: Inspection, call: ast.Call, name: str) -> None:
    """Note a call of the interface with wrong arguments, and a `print` to the program's standard output."""
    if name == "print" and not any(keyword.arg == "file" for keyword in call.keywords):
        found.warn(f"print: {PRINTS}", call.lineno)
    function = getattr(spank, name, None)
    if not inspect.isfunction(function):
        return
    if any(isinstance(one, ast.Starred) for one in call.args) or any(word.arg is None for word in call.keywords):
        return
    try:
        inspect.signature(function).bind(*call.args, **{str(word.arg): word.value for word in call.keywords})
    except TypeError as error:
        found.error(f"{name}: {error}", call.lineno)


class _Names:
    """The names in a plugin's source for members of nodectl.spank. `used`: the members used, each with the line."""

    def __init__(self, tree: ast.Module) -> None:
        self._imported: dict[str, str] = {}
        self._modules: set[str] = set()
        self.used: dict[str, int] = {}
        everything = False
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "nodectl.spank":
                names = [alias for alias in node.names if alias.name != "*"]
                everything |= len(names) < len(node.names)
                self._imported |= {alias.asname or alias.name: alias.name for alias in names}
                self.used |= {alias.name: node.lineno for alias in names}
            elif isinstance(node, ast.ImportFrom) and node.module == "nodectl":
                self._modules |= {alias.asname or alias.name for alias in node.names if alias.name == "spank"}
            elif isinstance(node, ast.Import):
                self._modules |= {
                    alias.asname for alias in node.names if alias.name == "nodectl.spank" and alias.asname
                }
        bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {node.name for node in ast.walk(tree) if isinstance(node, plugin_facts.Function | ast.ClassDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self._modules:
                self.used.setdefault(node.attr, node.lineno)
            elif everything and isinstance(node, ast.Name) and node.id not in bound and node.id.startswith(_SPELT):
                self._imported[node.id] = node.id
                self.used.setdefault(node.id, node.lineno)

    def meant(self, function: ast.expr) -> str:
        """Return the called function's name in nodectl.spank, "print" for the built-in, "" for anything else."""
        if isinstance(function, ast.Name):
            return self._imported.get(function.id, function.id if function.id == "print" else "")
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return function.attr if function.value.id in self._modules else ""
        return ""


def _options(tree: ast.Module) -> Iterator[Offered]:
    """Yield every SpankOption(...) of the source; an option inside the list spank_options is static."""
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
