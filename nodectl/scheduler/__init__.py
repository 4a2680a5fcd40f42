"""The queue: which job starts when. Priority, backfill, dependencies, arrays, limits, reservations, preemption.

Functions and objects of values: no clock, no files, no processes. The daemon calls it in its event loop, and `nodectl
select try` plays workloads against it in simulated time. Imports `nodectl.selection` and the layers below.
"""
