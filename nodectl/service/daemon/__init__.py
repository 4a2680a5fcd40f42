"""The service: admits steps, starts and follows steps, and remembers ended steps.

One process, the daemon, runs as root and is the only part of nodectl that uses asyncio. Nothing here forks; other
processes are executed. `main.py` is the daemon's life, `node.py` the table of the methods of org.nodectl. The packages
stand in this order, and each imports only those before it: processes, connections, steps, history, jobs, recovery,
admission, controller, methods.
"""
