"""The Python interface, `import nodectl.client`: clients, steps, results, an executor.

Runs in the importing program, as its user, and in no command. `operations.py` writes each request to the service once,
as generators; `client.py` drives the generators by blocking, `aio.py` by awaiting.
"""
