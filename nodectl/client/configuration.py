"""The configuration as a command reads it: from the file itself, as the user who asks."""

from nodectl.client.command import Failed
from nodectl.config import Config, ConfigError
from nodectl.config_file.reader import DEFAULT_PATH, load


def configured(path: str | None) -> Config:
    """The configuration at `path`, or in the usual place, where it need not be. Raises Failed."""
    try:
        return load(path or DEFAULT_PATH, must_exist=path is not None)
    except ConfigError as error:
        raise Failed(str(error)) from None


def as_json(config: Config) -> dict[str, object]:
    """Each key's value."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in config}
