"""The texts of --cpu-bind=help and similar options."""

_ENTRY = "  {:24} {}"
TEXTS = {
    "cpu_bind": ("CPU bind options", (
        ("q[uiet]", "bind without saying so (default)"), ("v[erbose]", "say how each task is bound"),
        ("none", "do not bind"), ("threads, cores", "to threads; to cores"),
        ("sockets, ldoms", "to sockets; to NUMA nodes"),
        ("rank", "task N to CPU N"), ("rank_ldom", "by rank to NUMA nodes"),
        ("map_cpu:LIST", "the CPU of each task: 0,2,0x4, 1*3 for three times"),
        ("mask_cpu:LIST", "the mask of each task: 0x3,0xC"), ("map_ldom:, mask_ldom:", "the same for NUMA nodes"),
        ("one_thread", "beside another: one thread of each core"),
    )),
    "mem_bind": ("Memory bind options", (
        ("q[uiet]", "bind without saying so (default)"), ("v[erbose]", "say how each task is bound"),
        ("none", "do not bind"), ("local", "to the memory of its CPUs"), ("rank", "task N to node N"),
        ("map_mem:LIST", "the node of each task: 0,1"), ("mask_mem:LIST", "the nodes of each task: 0x1,0x2"),
        ("p[refer]", "beside another: that memory first, not only"),
    )),
    "gpu_bind": ("GPU bind options", (
        ("none", "tasks see all GPUs of the step (default)"), ("closest", "those nearest to the task's CPUs"),
        ("map_gpu:LIST", "the GPU of each task: 0,1"), ("mask_gpu:LIST", "the GPUs of each task: 0x1,0x6"),
        ("per_task:N", "N for each task"), ("single:N", "one for each N tasks"), ("v[erbose]", "beside another"),
    )),
    "hint": ("Application hint options", (
        ("compute_bound", "use all cores of each socket, one thread of each"),
        ("memory_bound", "use one core of each socket, one thread of it"),
        ("multithread", "use all threads of a core"), ("nomultithread", "use one thread of each core"),
    )),
    "gres": ("Devices", (
        ("gpu[:TYPE][:N]", "N GPUs, of this type; 1 where no number is given"), ("none", "no device"),
        ("shard[:TYPE][:N]", "N shards of one GPU, which other jobs may share"),
    )),
}  # fmt: skip


def text(name: str) -> str:
    """Return the values of this option, as lines."""
    title, rows = TEXTS[name]
    option = name.replace("_", "-")
    return "\n".join([f"{title}, --{option}=", *(_ENTRY.format(*row) for row in rows)])
