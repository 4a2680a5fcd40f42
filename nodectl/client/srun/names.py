"""The options of srun, 22.05 to 25.11, without meaning on a single machine, and the refused options.

Rows are long names, with a letter where there is one, by the kind of argument. Used only where an option is not among
the common ones.
"""

NO_ARGUMENT, ARGUMENT, MAYBE_ARGUMENT = 0, 1, 2

# Scripts that have these options run on without them; -v lists them.
IGNORED = (
    (ARGUMENT, "acctg-freq bb bbf cluster cluster-constraint clusters:M cpu-freq delay-boot extra gpu-freq licenses:L "
               "max-time mcs-label msg-timeout partition:p power prefer profile segment "
               "slurmd-debug switches threads:T wckey"),
    (MAYBE_ARGUMENT, "no-kill:k resv-ports"),
    (NO_ARGUMENT, "autocomplete consolidate-segments interactive reboot spread-job spread-segments "
                  "stepmgr"),
)  # fmt: skip
# Here it would be wrong to go on without: the program would run otherwise than its user wants.
REFUSED = {
    "async": (
        NO_ARGUMENT,
        "",
        "a step ends with its command; `nodectl submit --wrap` runs a command without waiting for it",
    ),
    "container": (ARGUMENT, "", "OCI containers are not run here; --container-ns gives a job namespaces of its own"),
    "container-id": (ARGUMENT, "", "OCI containers are not run here"),
    "context": (ARGUMENT, "", "the SELinux context of a step cannot be chosen here"),
    "no-allocate": (NO_ARGUMENT, "Z", "each step has an allocation here"),
}
# Old names of options that are there, or other names for them.
ALIASES = {
    "cpu_bind": "cpu-bind", "mem_bind": "mem-bind", "pack-group": "het-group", "share": "oversubscribe",
    "tasks-per-node": "ntasks-per-node", "workdir": "chdir",
}  # fmt: skip
# Those with a meaning which `bulk`, `submit` and `alloc` may not have.
_WITH_MEANING = (
    (ARGUMENT, "accel-bind account:A bcast-exclude cpus-per-gpu epilog export-file gpus-per-socket het-group "
               "mem-per-gpu mpi nodefile:F ntasks-per-gpu ntasks-per-tres open-mode prolog time-min tmp tres-bind "
               "tres-per-task wait:W"),
    (MAYBE_ARGUMENT, "bcast compress immediate:I nice send-libs x11"),
    (NO_ARGUMENT, "debugger-test disable-status:X external-launcher multi-prog preserve-env:E pty quiet:Q "
                  "quit-on-interrupt test-only usage version:V"),
)  # fmt: skip
_OF_JOBS = (
    (ARGUMENT, "begin:b comment constraint:C deadline dependency:d jobid mem mem-per-cpu priority propagate qos:q "
               "reservation signal"),
    (NO_ARGUMENT, "contiguous hold:H oversubscribe:s"),
)  # fmt: skip
# Of sbatch only, whose options a job script holds.
SBATCH = (
    (ARGUMENT, "batch cluster container-id export-file extra gid gres-flags mem-bind stepmgr tres-bind"),
    (MAYBE_ARGUMENT, "get-user-env"),
)  # fmt: skip
# They say where tasks go, so `bind` may not pass them over.
_OF_LAYOUT = frozenset({"accel-bind", "cpu_bind", "cpus-per-gpu", "gpus-per-socket", "mem_bind", "nodefile",
                        "ntasks-per-gpu", "ntasks-per-tres", "share", "tasks-per-node", "tres-bind",
                        "tres-per-task"})  # fmt: skip
# Of srun only: they say something of a step.
_OF_STEPS = frozenset({
    "accel-bind", "async", "bcast", "bcast-exclude", "compress", "cpu_bind", "debugger-test", "disable-status",
    "epilog", "external-launcher", "het-group", "interactive", "jobid", "mem_bind", "mpi", "msg-timeout", "multi-prog",
    "no-allocate", "pack-group", "preserve-env", "prolog", "pty", "quit-on-interrupt", "relative", "resv-ports",
    "send-libs", "slurmd-debug", "threads",
})  # fmt: skip


def rows(*tables: "tuple[tuple[int, str], ...]") -> "list[tuple[str, str, int]]":
    """Return the long name, the letter and the kind of argument of each option."""
    return [
        (long, letter, has_arg)
        for table in tables
        for has_arg, words in table
        for long, _, letter in (word.partition(":") for word in words.split())
    ]


def all_rows() -> "list[tuple[str, str, int]]":
    """Return srun's options missing in the table of layout."""
    refused = [(long, letter, has_arg) for long, (has_arg, letter, _) in REFUSED.items()]
    return [*rows(IGNORED, _WITH_MEANING, _OF_JOBS), *refused, *((old, "", ARGUMENT) for old in ALIASES)]


def silent_in_layout() -> "list[tuple[str, str, int]]":
    """Return the options of srun and sbatch without effect on layout."""
    return [row for row in (*all_rows(), *rows(SBATCH)) if row[0] not in _OF_LAYOUT]


def names(command: str = "srun") -> set[str]:
    """Return the long names of srun, or of sbatch or salloc."""
    found = {long for long, _, _ in all_rows()}
    if command == "srun":
        return found
    return (found | {long for long, _, _ in rows(SBATCH)}) - _OF_STEPS
