"""Process tracking plugins: the processes of a step, and how signals reach all of them.

Run as root in a stepd.
"""
