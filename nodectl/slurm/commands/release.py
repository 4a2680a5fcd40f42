"""The release of Slurm imitated by the commands, in options and output."""

RELEASE = "22.05.8"
