"""Which tasks go to which CPUs: Slurm's rules as functions of values.

A request (`request.py`), machines (`nodectl.machine.topology`) and what the job holds go in; a `Layout` comes out, or
`Refused`. No files, no logging, no state: it runs in the daemon and in `nodectl bind`, as anyone.
"""
