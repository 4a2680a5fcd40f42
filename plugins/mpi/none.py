"""mpi/none: programs are started as they are. An MPI program is alone in its world, in each task of its own.

The plugin has none of the interface's functions, so a step pays for none.
"""

plugin_type = "mpi/none"
plugin_name = "no MPI"
plugin_version = (22, 5, 8)
