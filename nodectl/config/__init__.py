"""The configuration: one TOML file, declared by one table.

`keys.KEYS` makes the defaults, the checks, `nodectl config --explain` and the chapter of the manual. The
names are Slurm's parameter names in snake case. Read by the daemon at its start and by the client
at each command; tomllib and difflib are imported only when there is a file, or an unknown key.
"""

from __future__ import annotations

from nodectl.config.key import toml
from nodectl.config.keys import KEYS
from nodectl.kernel import trust

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import NoReturn

DEFAULT_PATH = "/etc/nodectl/nodectl.toml"

_MAX_BYTES = 1 << 20


class ConfigError(Exception):
    """A configuration that is not used; one line, `file: key: what is wrong, what is allowed`."""


class Config:
    """The values of all keys; cannot be changed. Durations are seconds, sizes bytes, paths
    absolute."""

    __slots__ = tuple(key.name for key in KEYS)

    node_name: str
    cluster_name: str
    partition_name: str
    runtime_dir: str
    state_dir: str
    socket: str
    plugin_dir: tuple[str, ...]
    task_plugin: tuple[str, ...]
    proctrack_type: str
    job_container_type: str
    plugstack_config: str
    spank_versions: str
    spank_hook_timeout: int
    select_type_parameters: tuple[str, ...]
    slurmd_parameters: tuple[str, ...]
    task_plugin_param: tuple[str, ...]
    boards: int
    cpu_spec_list: str
    core_spec_count: int
    gres: tuple[str, ...]
    container_base_path: str
    container_auto_base_path: bool
    container_dirs: tuple[str, ...]
    container_shared: bool
    container_namespaces: tuple[str, ...]
    container_net: str
    container_net_parent: str
    container_net_addresses: str
    container_net_gateway: str
    container_init_script: str | None
    container_clone_ns_script: str | None
    container_clone_ns_epilog: str | None
    container_script_timeout: int
    cgroup_name: str
    constrain_cores: str
    constrain_ram_space: str
    constrain_swap_space: str
    constrain_processes: str
    constrain_cpu_time: str
    constrain_io: str
    constrain_devices: str
    real_memory: int
    allowed_ram_space: float
    allowed_swap_space: float
    max_ram_percent: float
    max_swap_percent: float
    min_ram_space: int
    max_processes_per_step: int
    secure_floor: str
    secure: str
    cpu_weight: int
    cpu_max: int
    io_weight: int
    io_max: tuple[str, ...]
    hugetlb_max: tuple[str, ...]
    allowed_devices: tuple[str, ...]
    admin_group: str
    max_tasks_per_node: int
    max_message_bytes: int
    max_connections_per_user: int
    max_steps_per_user: int
    max_tasks_per_user: int
    max_step_bytes_per_user: int
    task_hard_limits: tuple[str, ...]
    user_cache_seconds: int
    kill_wait: int
    unkillable_step_timeout: int
    suspend_grace_time: int
    task_prolog: str | None
    task_epilog: str | None
    prolog: str | None
    epilog: str | None
    prolog_epilog_timeout: int
    history_limit: int
    history_bytes: int
    log_ended_steps: bool
    trace: bool

    def __init__(self, values: Mapping[str, object]) -> None:
        for key in KEYS:
            object.__setattr__(self, key.name, values[key.name])

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a configuration cannot be changed: {name}")

    def __iter__(self) -> Iterator[tuple[str, object]]:
        return ((key.name, getattr(self, key.name)) for key in KEYS)

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, Config) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self)})"


def load(path: str | None, *, must_exist: bool) -> Config:
    """Read the file at `path` (None: `DEFAULT_PATH`), or take the defaults if there is none.

    Called by the daemon as root and by the client as its user. Raises `ConfigError` for a file that
    cannot be read or (for root) trusted, that is no TOML, or that holds an unknown key or a value
    that is not allowed; for an absent one if it `must_exist`.
    """
    path = DEFAULT_PATH if path is None else path
    try:
        text = trust.read(path, _MAX_BYTES)
    except FileNotFoundError as error:
        if must_exist:
            raise ConfigError(f"configuration {path}: {error.strerror}") from error
        return build({})
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except trust.Untrusted as error:
        raise ConfigError(f"{path}: not trusted: {error}") from error
    import tomllib

    try:
        values = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:  # also of int(), which has a limit of digits
        raise ConfigError(f"{path}: no TOML: {error}") from error
    return build(values, path)


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


def with_section(config: Config, group: str, other: Config) -> Config:
    """`config` with the keys of one section as `other` has them."""
    return Config({key.name: getattr(other if key.group == group else config, key.name) for key in KEYS})


def explain(config: Config | None = None) -> str:
    """The text of `nodectl config --explain`, itself a file that can be read: each key with its
    help.

    Without a configuration the keys are commented out.
    """
    blocks = []
    for key in KEYS:
        value = "# " + key.name if config is None else key.name
        value += f" = {toml(getattr(config, key.name))}" if config is not None else " ="
        text = f"# {key.help}\n# Allowed: {key.parser.allowed}.\n# Default: {key.default_text()}.\n"
        blocks.append(f"{text}{value}\n")
    return "\n".join(blocks)


def manual() -> str:
    """The manual's chapter about the configuration, in Markdown: a section for each group of
    keys."""
    lines = []
    for index, key in enumerate(KEYS):
        if index == 0 or key.group != KEYS[index - 1].group:
            lines += [f"### {key.group.capitalize()}", ""]
        lines += [f"`{key.name}`", f":   {key.help} Allowed: {key.parser.allowed}."]
        lines += [f"    Default: {key.default_text()}.", ""]
    return "\n".join(lines)


def _unknown(name: str, value: object, names: tuple[str, ...]) -> str:
    import difflib

    if isinstance(value, dict):
        return "unknown section; keys are written without sections"
    near = difflib.get_close_matches(name, names, 1)
    return f"unknown key; did you mean {near[0]}?" if near else "unknown key; `nodectl config --explain` has all"


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)
