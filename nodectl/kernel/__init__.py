"""System calls and the kernel's files: identities, signals, descriptors, paths, trusted files. Missing calls are in C.

Used in every process. Imports nothing of nodectl.
"""
