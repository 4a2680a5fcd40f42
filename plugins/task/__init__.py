"""Task plugins: binding and limits of a step's tasks.

Run in the daemon and a stepd as root, and in a task as root and then as the user.
"""
