"""The release of Slurm whose options and output the commands imitate."""

RELEASE = "22.05.8"
