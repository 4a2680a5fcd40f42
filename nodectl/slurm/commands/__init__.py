"""Slurm's commands by Slurm's names: each takes Slurm's words and prints Slurm's columns.

They are thin. Each is a command of the user's that translates to nodectl's own parsers and calls; the conversion of a
job's record to Slurm's words is a function of values. `nodectl slurm-commands` writes the files that call `entry.py`.
"""
