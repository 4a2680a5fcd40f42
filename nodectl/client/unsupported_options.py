"""The options of srun that nodectl does not have: long names, with a letter where there is one, by what stands behind
them.

Looked at only where an option is not found by its whole name: none of these may be taken for the beginning of another.
"""

NO_ARGUMENT, ARGUMENT, MAYBE_ARGUMENT = 0, 1, 2

SRUN = (
    (ARGUMENT, "account:A acctg-freq bb bbf bcast-exclude begin:b cluster-constraint clusters:M comment constraint:C "
               "container context cpu-freq cpus-per-gpu deadline delay-boot dependency:d epilog gpu-freq het-group "
               "jobid licenses:L mail-type mail-user max-time mcs-label mem mem-per-cpu mem-per-gpu mpi msg-timeout "
               "network nodefile:F open-mode pack-group partition:p power prefer priority profile prolog propagate "
               "qos:q reservation signal slurmd-debug switches threads:T time-min tmp tres-per-task wait:W wckey"),
    (MAYBE_ARGUMENT, "bcast compress immediate:I nice no-kill:k resv-ports send-libs x11"),
    (NO_ARGUMENT, "contiguous debugger-test disable-status:X hold:H interactive multi-prog no-allocate:Z "
                  "oversubscribe:s preserve-env:E pty quiet:Q quit-on-interrupt reboot spread-job test-only usage "
                  "version:V"),
)  # fmt: skip
# They say where tasks go, so nobody may pass them over.
_OF_LAYOUT = "accel-bind cpu_bind gpus-per-socket mem_bind ntasks-per-gpu ntasks-per-tres tasks-per-node"
# Of sbatch only, whose options a job script holds.
SBATCH = (
    (ARGUMENT, "batch cluster container-id export-file extra gid gres-flags mem-bind stepmgr tres-bind"),
    (MAYBE_ARGUMENT, "get-user-env"),
)  # fmt: skip
# Of srun only: they say something of a step.
_OF_STEPS = (
    "accel-bind bcast bcast-exclude compress cpu_bind debugger-test disable-status epilog het-group interactive "
    "jobid mem_bind mpi msg-timeout multi-prog no-allocate pack-group preserve-env prolog pty quit-on-interrupt "
    "relative resv-ports send-libs slurmd-debug threads"
)


def names(command: str = "srun") -> set[str]:
    """The long names of srun, or of sbatch or salloc."""
    rows = (*SRUN, (ARGUMENT, _OF_LAYOUT))
    if command == "srun":
        return {word.partition(":")[0] for _, words in rows for word in words.split()}
    return {word.partition(":")[0] for _, words in (*rows, *SBATCH) for word in words.split()} - set(_OF_STEPS.split())
