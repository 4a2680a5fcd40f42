"""The release of Slurm whose words the commands take, and print theirs like."""

RELEASE = "22.05.8"
