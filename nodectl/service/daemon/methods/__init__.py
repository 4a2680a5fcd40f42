"""The methods of org.nodectl: the calls of users to the service.

Each file declares the shapes of its calls and has one class; `daemon/node.py` holds the table of methods.

Runs in the daemon, as root, in its event loop. It imports every other package of the daemon but `recovery`.
"""
