"""Reading of the configuration by a command: from the file itself, as the command's user."""

from nodectl.client.command import Failed
from nodectl.model.config import Config, ConfigError
from nodectl.service.config_file.reader import DEFAULT_PATH, load


def configured(path: str | None) -> Config:
    """Return the configuration at `path`, or at the usual place, where a file is optional. Raises Failed."""
    try:
        return load(path or DEFAULT_PATH, must_exist=path is not None)
    except ConfigError as error:
        raise Failed(str(error)) from None


def as_json(config: Config) -> dict[str, object]:
    """Return each key's value."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in config}
