"""The daemon: the service, which admits steps, starts them through the forkserver, and remembers how they ended.

One process, as root, with one event loop: the only part of nodectl that uses asyncio. `main.py` starts and ends it,
`node.py` is the table of its methods, and each folder is one subject. Nothing but the command imports it.
"""
