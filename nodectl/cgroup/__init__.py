"""Control groups: the tree of jobs and steps, and what is written into its files to confine them.

The daemon, as root, decides on limits, and makes and removes the groups of jobs; a stepd, as root, makes those of its
tasks, places processes in them and reads them. Imports kernel, wire, model, tracing, machine and config.
"""
