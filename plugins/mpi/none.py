"""mpi/none: programs are started as they are. An MPI program is alone in its world, in each task of its own.

None of the interface's functions is there, so that a step pays for none.
"""

plugin_type = "mpi/none"
plugin_name = "no MPI"
plugin_version = (22, 5, 8)
