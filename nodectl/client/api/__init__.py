"""What `import nodectl.client` gives to a Python program: clients, steps, results, an executor.

Runs in that program, as its user, and in no command. What is asked of the service is written once, as generators
(`operations.py`), which `client.py` drives by blocking and `aio.py` by awaiting.
"""
