"""Process tracking plugins: which processes belong to a step, and how signals reach all of them.

Run as root in a stepd.
"""
