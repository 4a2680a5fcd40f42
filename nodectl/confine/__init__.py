"""How far a step's programs are confined beyond their user's rights, and the scripts that run so.

The daemon chooses a level and has its filters compiled, in a process of its own (`seccomp_compiler.py`). Tasks, their
scripts and processes that enter a container apply them to themselves, the first part as root, the rest as the user. It
may import what stands below it: kernel, wire, model, config, spank.
"""
