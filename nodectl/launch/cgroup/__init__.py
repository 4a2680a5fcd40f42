"""Control groups: the tree of jobs and steps, and the confinement written into the files.

The daemon, as root, decides on limits, and makes and removes the groups of jobs; a stepd, as root, makes those of its
tasks, places processes in them and reads them. Imports kernel, wire, model, tracing, machine and config.
"""
