"""What gives nodes and starts agents on them: four calls, behind which Slurm stands, or a list of hosts.

Run by the command `nodectl cluster` and by the holder that it leaves behind, as the user.
"""
