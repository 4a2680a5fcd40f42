"""The hardware of a machine as values: topology, caches, devices, and descriptions of machines elsewhere.

Read by the daemon and by commands. Imports model.
"""
