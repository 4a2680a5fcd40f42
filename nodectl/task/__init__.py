"""A task, from its fork to its program: streams, environment, scripts, limits.

Runs in the task's process: root until it becomes the user. Looks up and imports nothing after the fork.
"""
