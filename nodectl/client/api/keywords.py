"""The options of steps and jobs as keyword arguments: their names and types.

Made by tests/generate.py from the tables of the command's options: change those.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TypedDict

Text = str | int
Listed = str | Sequence[str]
Amount = str | int  # of memory: MiB, or with K, M, G, T
Duration = str | int | timedelta  # minutes, or in srun's notations


class CommonOptions(TypedDict, total=False):
    """The options of steps and jobs alike; `nodectl run --help` explains each."""

    begin: str
    chdir: str | os.PathLike[str]
    comment: str
    constraint: str
    container_ns: Listed
    contiguous: bool
    core_spec: int
    cores_per_socket: int
    cpu_max: Text
    cpu_weight: int
    cpus_per_task: int
    deadline: str
    dependency: str
    distribution: str
    exclude: Listed
    exclusive: bool
    extra_node_info: str
    gid: Text
    gpu_bind: str
    gpu_mem: str
    gpus: Text
    gpus_per_node: Text
    gpus_per_task: Text
    gres: str
    gres_flags: str
    hint: str
    hold: bool
    hugetlb_max: Listed
    io_max: Listed
    io_priority: Text
    io_weight: int
    job_name: str
    mail_type: str
    mail_user: str
    mem: Amount
    mem_bind: str
    mem_per_cpu: Amount
    mincpus: int
    network: str
    nice: Text
    nodelist: Listed
    nodes: Text
    notify: str
    ntasks: int
    ntasks_per_core: int
    ntasks_per_node: int
    ntasks_per_socket: int
    oom_kill_step: bool
    overcommit: bool
    oversubscribe: bool
    pids_max: Text
    priority: Text
    propagate: Listed
    qos: str
    reservation: str
    secure: str
    signal: str
    sockets_per_node: int
    thread_spec: int
    threads_per_core: int
    time: Duration
    uid: Text
    use_min_nodes: bool


class StepOptions(CommonOptions, total=False):
    """The options of `run` and `start`.

    `plugin_options` holds a tuple for each option of a SPANK plugin: (plugin, option) or (plugin, option, argument).
    """

    cpu_bind: str
    exact: bool
    immediate: bool | int
    jobid: int
    kill_on_bad_exit: bool
    label: bool
    mpi: str
    overlap: bool
    plugin_options: Sequence[tuple[str, ...]]
    preload: Listed
    relative: int
    task_epilog: str | os.PathLike[str]
    task_prolog: str | os.PathLike[str]
    unbuffered: bool
    whole: bool


class JobOptions(CommonOptions, total=False):
    """The options of `submit`. Patterns of file names: %j job, %A array, %a index, %x name, %u user."""

    array: str
    error: str | os.PathLike[str]
    input: str | os.PathLike[str]
    kill_on_invalid_dep: str
    no_requeue: bool
    open_mode: str
    output: str | os.PathLike[str]
    requeue: bool
