"""Reading the configuration: a file of TOML, or no file, into a `Config`.

Runs in the daemon as root and in commands as their user; tomllib and difflib are imported only when there is a file, or
an unknown key.
"""

from __future__ import annotations

from nodectl.kernel import trust
from nodectl.model.config import Config, ConfigError, own_node
from nodectl.service.config_file.all_keys import KEYS

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PATH = "/etc/nodectl/nodectl.toml"

_MAX_BYTES = 1 << 20


def load(path: str | None, *, must_exist: bool) -> Config:
    """Read the file at `path` (None: `DEFAULT_PATH`); return the defaults if there is no file.

    Called by the daemon as root and by the client as its user. Raises `ConfigError` for a file that cannot be read or
    (for root) trusted, that is no TOML, or that holds an unknown key or a value that is not allowed; for a missing file
    if it `must_exist`. The file of a user's own node need not exist, and has other defaults.
    """
    path = DEFAULT_PATH if path is None else path
    usual: Mapping[str, object] = {}
    if own_node.is_own(path):
        from nodectl.service.config_file.own_node import defaults_of_own

        must_exist = False
        try:
            usual = defaults_of_own()
        except own_node.NotOurs as error:
            raise ConfigError(str(error)) from error
    try:
        text = trust.read(path, _MAX_BYTES)
    except FileNotFoundError as error:
        if must_exist:
            raise ConfigError(f"configuration {path}: {error.strerror}") from error
        return build(usual)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except trust.Untrusted as error:
        raise ConfigError(f"{path}: not trusted: {error}") from error
    import tomllib

    try:
        values = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:  # also of int(), which has a limit of digits
        raise ConfigError(f"{path}: no TOML: {error}{_advice(text, str(error))}") from error
    return build({**usual, **values}, path)


def build(values: Mapping[str, object], where: str = "configuration") -> Config:
    """Check TOML's values and add the defaults; `where` begins the message of a `ConfigError`."""
    names = tuple(key.name for key in KEYS)
    for name, value in values.items():
        if name not in names:
            raise ConfigError(f"{where}: {_printable(name)}: {_unknown(name, value, names)}")
    made: dict[str, object] = {}
    for key in KEYS:
        given = key.name in values
        # A default is checked too if it is made of another key's value or of the machine's.
        value = values[key.name] if given else key.make_default(made)
        if given or callable(key.default):
            try:
                value = key.parser.read(value)
            except ValueError as error:
                text = f"{where}: {key.name}: {error}; allowed: {key.parser.allowed}"
                raise ConfigError(text) from error
        made[key.name] = value
    return Config(made)


def with_section(config: Config, section: str, other: Config) -> Config:
    """Return `config` with the keys of a section taken from the second configuration."""
    return Config({key.name: getattr(other if key.section == section else config, key.name) for key in KEYS})


def _advice(text: bytes, error: str) -> str:
    """Return the line that is to blame, with the most frequent mistake."""
    found = error.rpartition("(at line ")[2].partition(",")[0]
    if not (error.startswith("Invalid value") and found.isdecimal()):
        return ""
    line = text.decode().split("\n")[int(found) - 1].strip()
    return f', {_printable(line[:80])}: words stand in quotation marks, as in key = "yes"'


def _unknown(name: str, value: object, names: tuple[str, ...]) -> str:
    import difflib

    if isinstance(value, dict):
        return "unknown section; keys are written without sections"
    near = difflib.get_close_matches(name, names, 1)
    return f"unknown key; did you mean {near[0]}?" if near else "unknown key; `nodectl config --explain` has all"


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)
