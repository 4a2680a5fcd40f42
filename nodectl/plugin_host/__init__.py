"""Plugins of every kind: finding, checking, loading and calling them.

kinds.py has a line for each kind, loader.py turns a file into a plugin, node_plugins.py holds the plugins shared by all
steps of the node, caller.py calls plugins. The daemon and the forkserver load plugins as root; the daemon, a stepd and
its tasks call them, each hook as the identity that the launch order states. Imports config and the packages below it.
"""

import os

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILTIN_DIR = os.path.join(_PACKAGE, "plugins")
"""The plugins that come with nodectl."""
INCLUDE_DIR = os.path.join(_PACKAGE, "include")
"""Where compilers of SPANK plugins find slurm/spank.h."""
