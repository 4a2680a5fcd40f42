"""Control groups: the tree of jobs and steps, and what is written into its files to confine them.

The daemon makes and removes groups; a stepd places processes in them and reads them.
"""
