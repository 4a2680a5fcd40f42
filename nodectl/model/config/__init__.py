"""The configuration as values: keys, the plain values of keys, and the `Config` made from the values.

Used by the daemon, and by commands as their user. Imports no other subject: each subject declares its own keys in its
`keys.py`, and `nodectl.service.config_file` makes the table of them.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import NoReturn


class ConfigError(Exception):
    """A refused configuration; the text is a line, `file: key: what is wrong, what is allowed`."""


class Config:
    """The values of all keys; unchangeable. Durations are seconds, sizes bytes, paths absolute.

    The annotations are the keys with the types that their parsers return: tests/generate.py writes them from the rows,
    in the order of `config_file/all_keys.py`.
    """

    # node
    node_name: str
    cluster_name: str
    partition_name: str
    # files
    runtime_dir: str
    state_dir: str
    socket: str
    # plugins
    plugin_dir: tuple[str, ...]
    task_plugin: tuple[str, ...]
    proctrack_type: str
    job_container_type: str
    mpi_plugin: tuple[str, ...]
    mpi_default: str
    plugstack_config: str
    spank_versions: str
    spank_hook_timeout: int
    # binding
    select_type_parameters: tuple[str, ...]
    slurmd_parameters: tuple[str, ...]
    task_plugin_param: tuple[str, ...]
    boards: int
    cpu_spec_list: str
    core_spec_count: int
    gres: tuple[str, ...]
    gpu_sharing: str
    # selection
    select_type: str
    over_subscribe: str
    def_mem_per_cpu: int
    # queue
    priority_weight_age: int
    priority_weight_fairshare: int
    priority_weight_job_size: int
    priority_weight_qos: int
    priority_max_age: int
    priority_decay_half_life: int
    priority_favor_small: bool
    max_wait: int
    bf_window: int
    bf_max_job_test: int
    bf_interval: int
    default_time: int
    max_time: int
    max_jobs_per_user: int
    max_submit_jobs_per_user: int
    max_cpus_per_user: int
    max_memory_per_user: int
    max_devices_per_user: int
    week_hours: tuple[str, ...]
    max_array_size: int
    qos: tuple[str, ...]
    preempt_mode: str
    # containers
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
    # cgroups
    cgroup_name: str
    slurm_scope: str
    constrain_cores: str
    constrain_ram_space: str
    constrain_swap_space: str
    constrain_processes: str
    constrain_cpu_time: str
    constrain_io: str
    constrain_gpu_memory: str
    constrain_devices: str
    real_memory: int
    allowed_ram_space: float
    allowed_swap_space: float
    max_ram_percent: float
    max_swap_percent: float
    min_ram_space: int
    max_processes_per_step: int
    cpu_weight: int
    cpu_max: int
    io_weight: int
    io_max: tuple[str, ...]
    hugetlb_max: tuple[str, ...]
    allowed_devices: tuple[str, ...]
    # fence
    login_memory: int
    login_weight: int
    login_cgroup: str
    login_outside: tuple[str, ...]
    foreign_gpu_use: str
    # security
    secure_floor: str
    secure: str
    # limits
    admin_group: str
    max_tasks_per_node: int
    max_message_bytes: int
    max_connections_per_user: int
    max_steps_per_user: int
    max_tasks_per_user: int
    max_step_bytes_per_user: int
    task_hard_limits: tuple[str, ...]
    user_cache_seconds: int
    # jobs
    max_script_size: int
    kept_scripts_per_user: int
    max_batch_bytes_per_user: int
    interactive_lease: int
    drain_on_failure: tuple[str, ...]
    idle_after: int
    idle_action: str
    idle_grace: int
    private_data: tuple[str, ...]
    # steps
    kill_wait: int
    unkillable_step_timeout: int
    suspend_grace_time: int
    task_prolog: str | None
    task_epilog: str | None
    prolog: str | None
    epilog: str | None
    prolog_slurmctld: str | None
    epilog_slurmctld: str | None
    prolog_epilog_timeout: int
    warm_runners: int
    warm_runner_time: int
    always_fork: bool
    # logins
    login_entry: str
    login_when_down: str
    # notices
    sendmail: str | None
    notify_command: str | None
    notify_user: str
    notify_events: tuple[str, ...]
    notify_timeout: int
    max_notices_per_user: int
    # records
    history_limit: int
    history_bytes: int
    history_days: int
    log_ended_steps: bool
    trace: bool

    __slots__ = tuple(__annotations__)

    def __init__(self, values: Mapping[str, object]) -> None:
        for name in self.__slots__:
            object.__setattr__(self, name, values[name])

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a configuration cannot be changed: {name}")

    def __iter__(self) -> Iterator[tuple[str, object]]:
        return ((name, getattr(self, name)) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return dict(self) == dict(other) if isinstance(other, Config) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value!r}' for name, value in self)})"
