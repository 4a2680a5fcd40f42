"""What the feature `slurm` adds to nodectl: Slurm's commands by name."""

from nodectl.model.features import Command, Feature

FEATURE = Feature(
    (
        Command(
            "slurm-commands", "write srun, sbatch, squeue, ... into a directory",
            "nodectl.slurm.write_commands", after="completion",
        ),
    ),
    manual="nodectl.slurm.manual",
)  # fmt: skip
