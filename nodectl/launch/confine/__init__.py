"""The confinement of a step's programs beyond the rights of the user, and the scripts running so.

The daemon chooses a level and has its filters compiled, in a process of its own (`seccomp_compiler.py`). Tasks, their
scripts and processes that enter a container apply them to themselves, the first part as root, the rest as the user. It
may import the packages below it: kernel, wire, model, config, spank.
"""
