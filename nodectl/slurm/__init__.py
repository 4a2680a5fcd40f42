"""A feature: Slurm's commands by name. Run by the commands `squeue`, `sinfo`, `sacct` and their like."""
