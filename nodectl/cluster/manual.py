"""Texts of `nodectl cluster` for the manual, as in `nodectl.cli.manual.about`."""

DESCRIPTIONS = {
    "cluster": (
        "Within an allocation of several nodes, `start` starts an agent on each, by one step of Slurm's that is kept "
        "for as long as the allocation. From then on commands in the allocation, on any of its nodes, speak of all of "
        "them. The first run that asks for more nodes than one does so by itself. Nothing has to be installed but what "
        "this command is, under the same path, and nothing runs as root.",
        "With `-w`, hosts are reached by ssh, which has to work without a question, or by the words in `NODECTL_SSH`, "
        "which are followed by a host and a command for its shell. It prints the variable that commands then find the "
        "cluster by.",
        "A process stays behind `start`, or that run, and keeps the agents. When it goes, so do they, with all that "
        "runs on them.",
    ),
}  # fmt: skip

EXAMPLES = {
    "cluster": (
        ("In a batch script of Slurm's:", "nodectl run -N3 -n12 ./solver"),
        ("Commands that name no number of nodes are to speak of all, too:", "nodectl cluster start"),
        ("Who is there:", "nodectl cluster status"),
    ),
}  # fmt: skip

SEE = {
    "cluster": ("nodectl-run(1)", "nodectl-bulk(1)"),
}  # fmt: skip
