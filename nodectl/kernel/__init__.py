"""System calls and the kernel's files: identities, signals, descriptors, paths, trusted files; in C what Python lacks.

Used in every process. Imports nothing of nodectl.
"""
