"""job_container/none: jobs see the machine as everybody does.

The default. The plugin has none of the interface's functions, so a step pays for none.
"""

plugin_type = "job_container/none"
plugin_name = "no job container"
plugin_version = (22, 5, 8)
