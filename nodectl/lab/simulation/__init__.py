"""Workloads played against a select plugin in simulated time, for plugin authors and for tests: `nodectl select`.

No service, no root, no clock: it drives `nodectl.scheduler` over a table of described nodes. Runs in commands and in
tests, as any user.
"""
