"""task/none: the task plugin interface without any effect.

Configure `task_plugin = ["task/none"]` to run tasks with neither binding nor limits.
"""

plugin_type = "task/none"
plugin_name = "no task management"
plugin_version = (22, 5, 8)
