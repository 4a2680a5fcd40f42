"""Read the facts of a plugin file (names, version, hooks, options) from the syntax tree, without executing the file.

The checks are those of `nodectl.plugin_host.loader.load` as far as reading can make them. A file without problems here
can still be refused at load (the effect of its body is unknown); a file with problems will be refused.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodectl.plugin_host.compiled import described, is_compiled
from nodectl.plugin_host.kinds import KINDS, STEP, Kind
from nodectl.plugin_host.loader import LIFE, PluginRefused, compile_plugin, compile_text
from nodectl.plugin_host.spelling import any_near, nearest
from nodectl.plugin_host.version import differs, read_version

_NAMES = ("plugin_type", "plugin_name", "plugin_version")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a plugin file; fields are empty where the file could not be read.

    `problems` (the loader refuses the file for them) and `warnings` are lines `file:line: reason`.
    """

    path: str
    type: str = ""
    name: str = ""
    version: tuple[int, ...] = ()
    about: str = ""
    hooks: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())

    @property
    def is_helper(self) -> bool:
        """True for a module imported only by neighbouring plugins: no plugin_type, no plugin_name, no hooks."""
        return not self.hooks and {f"{self.path}: {name} is missing" for name in _NAMES[:2]} <= set(self.problems)


def read(path: str, kind: str) -> Facts:
    """Read the facts of the plugin at `path` of this kind ("task", "spank"). A refusal becomes the only problem."""
    try:
        if is_compiled(path):
            found = described(path)
            return Facts(
                path, type=found.type, hooks=tuple(name for name in KINDS[kind].functions if name in found.hooks)
            )
        source = compile_plugin(path)
    except PluginRefused as refused:
        return Facts(path, problems=(str(refused),))
    return of_text(path, source.text, kind)


def of_text(path: str, text: bytes, kind_name: str) -> Facts:
    """Return the facts of a file of this kind with this content, without a check of the file's owner and mode."""
    kind = KINDS[kind_name]
    try:
        source = compile_text(path, text)
        tree = ast.parse(source.text, path)
    except PluginRefused as refused:
        return Facts(path, problems=(str(refused),))
    except (ValueError, RecursionError, MemoryError) as error:
        return Facts(path, problems=(f"{path}: cannot be parsed: {error}",))
    values = dict(_assignments(tree))
    defined = dict(_definitions(tree))
    known = kind.functions
    return Facts(
        path,
        type=str(_constant(values.get("plugin_type")) or ""),
        name=str(_constant(values.get("plugin_name")) or ""),
        version=_version(values, kind),
        about=(ast.get_docstring(tree) or "").partition("\n")[0].strip(),
        hooks=tuple(name for name in known if name in defined),
        options=tuple(_options(values.get("spank_options"))) if kind_name == "spank" else (),
        problems=tuple(_problems(path, kind, values, defined)),
        warnings=tuple(f"{path}:{line}: {reason}" for line, reason in _unknown_functions(kind, defined)),
    )


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements run at load, including statements below an `if`, `try` or `with`."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With):
                yield from _top_level(getattr(statement, name, []))


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for statement in _top_level(tree.body):
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the possible names of functions: defined, assigned or imported."""
    for statement in _top_level(tree.body):
        if isinstance(statement, Function):
            yield statement.name, statement
        elif isinstance(statement, ast.Assign):
            yield from ((target.id, statement) for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.ImportFrom | ast.Import):
            yield from ((alias.asname or alias.name, statement) for alias in statement.names)


def _constant(value: ast.expr | None) -> object:
    """Return the value of a literal, None for any computed expression."""
    try:
        return None if value is None else ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _options(value: ast.expr | None) -> Iterator[str]:
    """Yield the names in a literal list of SpankOption(name, ...)."""
    for element in value.elts if isinstance(value, ast.List | ast.Tuple) else ():
        if isinstance(element, ast.Call):
            first = element.args[0] if element.args else None
            named = next((keyword.value for keyword in element.keywords if keyword.arg == "name"), first)
            name = _constant(named)
            if isinstance(name, str):
                yield name


def _version(values: Mapping[str, ast.expr], kind: Kind) -> tuple[int, ...]:
    """Return the version the file was written for, () if the file does not show a version."""
    try:
        return read_version(_constant(values.get("plugin_version")), kind)
    except ValueError:
        return ()


def _problems(path: str, kind: Kind, values: Mapping[str, ast.expr], defined: Mapping[str, ast.stmt]) -> Iterator[str]:
    for name in _NAMES:
        if name not in defined and name not in values and (name != "plugin_version" or kind.versioned):
            yield f"{path}: {name} is missing"
    yield from (f"{path}:{line}: {reason}" for line, reason in _wrong_labels(path, kind, values))
    yield from (f"{path}:{line}: {reason}" for line, reason in _wrong_functions(kind, defined))
    absent = [name for name in kind.required if name not in defined]
    if absent:
        yield f"{path}: {kind.name} plugin without {', '.join(absent)}"
    if kind.hosted == STEP and not any(name in kind.functions for name in defined):
        yield f"{path}: {kind.name} plugin without any {kind.prefix.rstrip('_')} function"


def _wrong_labels(path: str, kind: Kind, values: Mapping[str, ast.expr]) -> Iterator[tuple[int, str]]:
    """Yield line and reason of a wrong plugin_type and of a wrong plugin_version."""
    said = _constant(values.get("plugin_type"))
    wanted = kind.name if kind.hosted == STEP else f"{kind.name}/{path.rpartition('/')[2].removesuffix('.py')}"
    if isinstance(said, str) and said != wanted and not (kind.hosted == STEP and said.startswith(f"{kind.name}/")):
        yield values["plugin_type"].lineno, f"plugin_type is {said!r}; {wanted!r} was asked for"
    version = _constant(values.get("plugin_version"))
    if version is not None:
        try:
            wrong = differs(read_version(version, kind), kind)
        except ValueError as error:
            wrong = str(error)
        if wrong:
            yield values["plugin_version"].lineno, wrong


def _wrong_functions(kind: Kind, defined: Mapping[str, ast.stmt]) -> Iterator[tuple[int, str]]:
    known = {**LIFE, **kind.functions}
    for name, statement in defined.items():
        if not isinstance(statement, Function):
            continue
        if name in known:
            if isinstance(statement, ast.AsyncFunctionDef):
                yield statement.lineno, f"{name} must not be async"
            # A decorator may return a function of any shape.
            elif not statement.decorator_list and not _takes(statement.args, known[name]):
                most = len(statement.args.posonlyargs) + len(statement.args.args)
                yield statement.lineno, f"{name} takes {most} parameter(s); it is called with {known[name]}"
            continue
        owner = next((other for other in KINDS.values() if name.startswith(other.prefix)), None)
        if owner is kind and any_near(name, kind.functions):
            yield statement.lineno, f"{name} is unknown; nearest is {nearest(name, kind.functions)}"
        elif owner is not None and owner is not kind:
            yield (
                statement.lineno,
                f"{name} belongs in a {owner.name} plugin; nothing calls it in a {kind.name} plugin",
            )


def _unknown_functions(kind: Kind, defined: Mapping[str, ast.stmt]) -> Iterator[tuple[int, str]]:
    """Yield warnings about functions with the kind's prefix and no similar hook.

    A later release may call these functions, therefore the plugin is accepted.
    """
    known = kind.functions
    for name, statement in defined.items():
        unknown = isinstance(statement, Function) and name.startswith(kind.prefix) and name not in known
        if unknown and not any_near(name, known):
            yield statement.lineno, f"{name} is unknown and never called; nearest is {nearest(name, known)}"


def _takes(arguments: ast.arguments, count: int) -> bool:
    most = len(arguments.posonlyargs) + len(arguments.args)
    least = most - len(arguments.defaults)
    return least <= count and (count <= most or arguments.vararg is not None)
