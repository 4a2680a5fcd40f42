"""Finding, compiling, loading and checking plugins in Python files.

Two steps, because two processes do them. `compile_plugin` reads and compiles and runs nothing of the plugin; the
forkserver does it once. `load` executes the body and is called where the plugin's code may run: in a stepd for a step's
plugins, in the daemon for its own. Every fault of a file is one `PluginRefused`, with file, line and reason, before any
hook is called.

The forkserver imports this module: it imports only `os`, `stat`, `types` and modules that every interpreter has
imported.
"""

from __future__ import annotations

import marshal
import os
import sys
import types
from _frozen_importlib_external import MAGIC_NUMBER

from nodectl.kernel import trust
from nodectl.plugin_host import BUILTIN_DIR
from nodectl.plugin_host.helpers import Neighbours
from nodectl.plugin_host.kinds import KINDS, STEP
from nodectl.plugin_host.spelling import any_near, is_near, nearest
from nodectl.plugin_host.version import differs, read_version

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn, TypeVar

    from nodectl.plugin_host.kinds import Kind

    _P = TypeVar("_P", bound="Plugin")

LIFE = {"init": 0, "fini": 0}
"""What a plugin of any kind may have, with the numbers of parameters."""
_APIS = frozenset(kind.api for kind in KINDS.values())  # a plugin of one kind may log as one of another
_MAX_SOURCE = 4 << 20
_LONGEST_NAME = 100  # of a plugin_name in messages
_VARARGS = 0x04
_NO_PLAIN_CALL = 0x20 | 0x80 | 0x200  # generator, coroutine, asynchronous generator


class PluginRefused(Exception):
    """A refused plugin. `str()` is a line, `file:line: reason`; `line` is None if unknown."""

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        reason = " ".join(reason.split())
        super().__init__(f"{path}: {reason}" if line is None else f"{path}:{line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


class Source:
    """A plugin file, read and compiled, before any execution."""

    __slots__ = ("code", "path", "text")

    def __init__(self, path: str, text: bytes, code: types.CodeType) -> None:
        self.path = path
        self.text = text
        self.code = code

    def line_of(self, name: str) -> int | None:
        """Return the line of the first assignment to the module attribute `name`, or None."""
        wanted = name.encode()
        for number, line in enumerate(self.text.splitlines(), 1):
            if line.startswith(wanted) and line[len(wanted) :].lstrip()[:1] in (b"=", b":"):
                return number
        return None

    def refuse(self, attribute: str, reason: str) -> NoReturn:
        """Raise `PluginRefused` for the value of a module attribute."""
        raise PluginRefused(self.path, self.line_of(attribute), reason)


class Plugin:
    """A loaded plugin after every check; `init` has not been called.

    `hooks` holds the existing functions by name, `init` and `fini` among them. `title` is the name for people: type and
    name. `warnings`: oddities of the plugin, which would be a refusal elsewhere. A kind whose plugins have more
    attributes derives a class from this class; that class refuses wrong attributes when it is made.
    """

    __slots__ = ("hooks", "module", "name", "path", "title", "type", "version", "warnings")

    def __init__(
        self,
        source: Source,
        module: types.ModuleType,
        version: tuple[int, ...],
        hooks: dict[str, types.FunctionType],
        warnings: list[PluginRefused],
    ) -> None:
        self.path = source.path
        self.warnings = warnings
        self.module = module
        self.type: str = module.plugin_type
        self.name: str = module.plugin_name
        self.title = titled(self.type, self.name)
        self.version = version
        self.hooks = hooks

    def __repr__(self) -> str:
        return f"Plugin({self.type!r}, {self.path!r})"


def titled(plugin_type: str, name: str) -> str:
    """Return a plugin's name for messages: `task/nice (task niceness)`. A name equal to the type is left out."""
    if name in ("", plugin_type, plugin_type.rpartition("/")[2]):
        return plugin_type
    return f"{plugin_type} ({name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + '...'})"


def find(plugin_type: str, plugin_dirs: Iterable[str]) -> str:
    """Return the path of the plugin of this type: the first `task/affinity.py` in `plugin_dirs` for `task/affinity`.

    For kinds with compiled plugins it may be a `.so`, if the directory has no such `.py`. Raises `PluginRefused` (with
    the type as its path) for a type that is not two plain words, and for a type without a file. Runs nothing.
    """
    words = plugin_type.split("/")
    if len(words) != 2 or not all(_is_plain(word) for word in words):
        raise PluginRefused(plugin_type, None, "no plugin type; one is written like task/affinity")
    dirs = tuple(plugin_dirs)
    suffixes = suffixes_of(words[0])
    for directory in dirs:
        for suffix in suffixes:
            path = os.path.join(directory, words[0], words[1] + suffix)
            if os.path.isfile(path):
                return path
    searched = ":".join(dirs) or "an empty plugin_dir"
    files = " or ".join(f"{plugin_type}{suffix}" for suffix in suffixes)
    raise PluginRefused(plugin_type, None, f"no file {files} in {searched}")


def suffixes_of(kind: str) -> tuple[str, ...]:
    """Return the suffixes of the files of this kind of plugin."""
    known = KINDS.get(kind)
    return (".py", ".so") if known is not None and known.compiled else (".py",)


def compile_plugin(path: str) -> Source:
    """Read and compile the file at `path` without executing the code.

    Raises `PluginRefused` for a file that cannot be read, that a user other than root could change (checked when the
    effective user is root), or that is no Python.
    """
    try:
        text = trust.read(path, _MAX_SOURCE)
    except trust.Untrusted as error:
        raise PluginRefused(path, None, f"not trusted: {error}") from error
    except OSError as error:
        raise PluginRefused(path, None, f"cannot be read: {error.strerror}") from error
    installed = _installed_code(path, text)
    return compile_text(path, text) if installed is None else Source(path, text, installed)


def _installed_code(path: str, text: bytes) -> types.CodeType | None:
    """Return pip's compiled code of a built-in plugin, or None if the code belongs to another text.

    This saves five milliseconds of each daemon's start. The code is as trusted as our modules, which Python loads from
    such files.
    """
    directory, _, name = path.rpartition("/")
    if not path.startswith(f"{BUILTIN_DIR}/"):
        return None
    try:
        cached = f"{directory}/__pycache__/{name.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
        data = trust.read(cached, _MAX_SOURCE)
        modified = int(os.stat(path).st_mtime)
    except (OSError, trust.Untrusted):
        return None
    facts = (0, modified, len(text))  # 0: the file is valid for a source of this time and size
    head = MAGIC_NUMBER + b"".join((fact & 0xFFFF_FFFF).to_bytes(4, "little") for fact in facts)
    if not data.startswith(head):
        return None
    try:
        code: types.CodeType = marshal.loads(data[len(head) :])  # noqa: S302  # root's own
    except (EOFError, ValueError, TypeError):
        return None  # the disk was full
    return code


def compile_text(path: str, text: bytes) -> Source:
    """Compile a plugin's text as `compile_plugin` does for a file. Raises `PluginRefused`."""
    try:
        # dont_inherit: this module's own __future__ imports are not the plugin's.
        code = compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise PluginRefused(path, error.lineno, f"syntax error: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise PluginRefused(path, None, f"cannot be compiled: {_words(error)}") from error
    return Source(path, text, code)


def load(
    source: Source,
    kind: Kind,
    make: Callable[[Source, types.ModuleType, tuple[int, ...], dict[str, types.FunctionType], list[PluginRefused]], _P],
) -> _P:
    """Execute the plugin's body with the caller's identity, check the plugin and return it. Raises `PluginRefused`.

    The type of a node's plugin must be `<kind>/<file name>`, from the place of the file; a step's plugin says `<kind>`
    or `<kind>/<any word>`. `make`: `Plugin`, or the class of the kind.
    """
    module = _execute(source, kind)
    try:
        _check_type(source, module, kind)
        version = _check_version(source, module, kind)
        found, warnings = _check_functions(source, module, kind)
        absent = [name for name in kind.required if name not in found]
        if absent:
            raise PluginRefused(source.path, None, f"{kind.name} plugin without {', '.join(absent)}")
        return make(source, module, version, found, warnings)
    except BaseException:
        sys.modules.pop(module.__name__, None)
        raise


def _execute(source: Source, kind: Kind) -> types.ModuleType:
    name = f"nodectl_plugin_{kind.name}_{_stem(source.path)}"
    while name in sys.modules:  # a SPANK plugin may be listed twice, with a state for each time
        name += "_"
    module = types.ModuleType(name)
    module.__file__ = source.path
    # Registered because enum, dataclasses and pickle look a class's module up by name.
    sys.modules[name] = module
    try:
        if kind.hosted == STEP:  # executed after a fork, where nothing more is to be read
            exec(source.code, module.__dict__)  # noqa: S102 - what loading a plugin is
        else:
            with Neighbours(source.path, lambda path: compile_plugin(path).code) as module.__package__:
                exec(source.code, module.__dict__)  # noqa: S102
    except PluginRefused:  # of a file beside it
        sys.modules.pop(name, None)
        raise
    except BaseException as error:
        # SystemExit and KeyboardInterrupt too: a plugin file must not be able to end its host by
        # `exit()`.
        sys.modules.pop(name, None)
        reason = f"its body raised {type(error).__name__}: {_words(error)}{_advice(source, error)}"
        raise PluginRefused(source.path, _line_in(source.path, error), reason) from error
    return module


def _advice(source: Source, error: BaseException) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and os.path.isfile(f"{os.path.dirname(source.path)}/{missing}.py"):
        return f"; what lies beside a plugin is had by `from . import {missing}`"
    return ""


def _check_type(source: Source, module: types.ModuleType, kind: Kind) -> None:
    for attribute in ("plugin_type", "plugin_name"):
        value = _attribute(source, module, attribute)
        if type(value) is not str or not value or not value.isprintable():
            source.refuse(attribute, f"{attribute} is {value!r}; a string of one line is needed")
    said = module.plugin_type
    if kind.hosted == STEP:
        major, slash, minor = said.partition("/")
        if major != kind.name or bool(slash) != bool(minor):
            source.refuse("plugin_type", f"plugin_type is {said!r}; {kind.name!r} is needed")
    elif said != f"{kind.name}/{_stem(source.path)}":
        wanted = f"{kind.name}/{_stem(source.path)}"
        source.refuse("plugin_type", f"plugin_type is {said!r}; {wanted!r} was asked for")


def _check_version(source: Source, module: types.ModuleType, kind: Kind) -> tuple[int, ...]:
    if not kind.versioned and "plugin_version" not in module.__dict__:
        return ()
    said = _attribute(source, module, "plugin_version")
    try:
        version = read_version(said, kind)
    except ValueError as error:
        source.refuse("plugin_version", str(error))
    if wrong := differs(version, kind):
        source.refuse("plugin_version", wrong)
    return version


def _check_functions(
    source: Source, module: types.ModuleType, kind: Kind
) -> tuple[dict[str, types.FunctionType], list[PluginRefused]]:
    """Return the plugin's functions and warnings."""
    known = {**LIFE, **kind.functions}
    found: dict[str, types.FunctionType] = {}
    warnings: list[PluginRefused] = []
    for name, value in module.__dict__.items():
        parameters = known.get(name)
        if parameters is not None:
            if type(value) is not types.FunctionType:
                reason = f"{name} is a {type(value).__name__}; a plain function is needed"
                source.refuse(name, reason)
            _check_parameters(source, value, name, parameters)
            found[name] = value
        elif callable(value) and getattr(value, "__module__", None) not in _APIS:
            if name.startswith(kind.prefix) and (kind.hosted == STEP or not any_near(name, kind.functions)):
                # The manual: the list of hooks may grow, and a plugin may ask which hooks exist. Hooks of node
                # plugins are checked at the start of the service: a misspelt name is refused there.
                reason = f"{name} is unknown; nearest is {nearest(name, kind.functions)}"
                warnings.append(PluginRefused(source.path, _line_of_function(source, value), reason))
            else:
                _check_unknown(source, value, name, kind)
    return found, warnings


def _check_parameters(source: Source, function: types.FunctionType, name: str, parameters: int) -> None:
    code = function.__code__
    line = _line_of_function(source, function)
    if code.co_flags & _NO_PLAIN_CALL:
        # Calling it would make an object and run nothing.
        raise PluginRefused(source.path, line, f"{name} must not be async or contain yield")
    keywords = set(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])
    forced = keywords.difference(function.__kwdefaults__ or ())
    if forced:
        reason = f"{name} has the keyword-only parameter {min(forced)}, which no caller passes"
        raise PluginRefused(source.path, line, reason)
    most = code.co_argcount
    least = most - len(function.__defaults__ or ())
    if parameters < least or (parameters > most and not code.co_flags & _VARARGS):
        reason = f"{name} takes {most} parameter(s); it is called with {parameters}"
        raise PluginRefused(source.path, line, reason)


def _check_unknown(source: Source, value: object, name: str, kind: Kind) -> None:
    """Refuse a callable with an unknown name close to a hook's name."""
    for other in KINDS.values():
        if not name.startswith(other.prefix):
            continue
        if other.name == kind.name:
            reason = f"{name} is unknown; nearest is {nearest(name, kind.functions)}"
        else:
            reason = f"{name} belongs in a {other.name} plugin; nothing calls it in a {kind.name} plugin"
        raise PluginRefused(source.path, _line_of_function(source, value), reason)
    if name.startswith("_") or type(value) is not types.FunctionType:
        return
    for hook in kind.functions:
        if is_near(name, hook):
            reason = f"{name} looks like a misspelt {hook}; rename it"
            raise PluginRefused(source.path, _line_of_function(source, value), reason)


def _attribute(source: Source, module: types.ModuleType, name: str) -> object:
    try:
        return module.__dict__[name]
    except KeyError:
        raise PluginRefused(source.path, None, f"{name} is missing") from None


def _line_of_function(source: Source, value: object) -> int | None:
    code = getattr(value, "__code__", None)
    if isinstance(code, types.CodeType) and code.co_filename == source.path:
        return code.co_firstlineno
    return None


def _line_in(path: str, error: BaseException) -> int | None:
    """Return the innermost line of the plugin's file in the exception's traceback."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _words(error: BaseException) -> str:
    try:
        return str(error) or "no message"
    except Exception:  # a plugin's exception class may raise here too
        return "no message"


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _is_plain(word: str) -> bool:
    return word.isascii() and word.replace("_", "").isalnum()
