"""System calls and the kernel's files: identities, signals, descriptors, paths, trusted files; in C where Python has no
call.

Used in every process. Imports nothing of nodectl.
"""
