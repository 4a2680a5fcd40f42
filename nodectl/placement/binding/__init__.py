"""Binding of tasks to CPUs: Slurm's rules as functions of values.

A request (`request.py`), machines (`nodectl.placement.machine.topology`) and the job's allocation go in; a `Layout`
comes out, or `NoLayout`. No files, no logging, no state: it runs in the daemon and in `nodectl bind`, as any user.
"""
