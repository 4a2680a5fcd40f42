"""Texts of `nodectl slurm-commands` for the manual, as in `nodectl.cli.manual.about`."""

EXAMPLES = {
    "slurm-commands": (("For the scripts of one user:", 'nodectl slurm-commands ~/slurm\nPATH=~/slurm:"$PATH"'),),
}  # fmt: skip

SEE = {
    "slurm-commands": ("nodectl-run(1)", "nodectl-submit(1)"),
}  # fmt: skip
