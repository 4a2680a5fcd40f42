"""Plugins of every kind: finding, checking, loading and calling them.

Used by the daemon, the forkserver, a stepd and its tasks.
"""

import os

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILTIN_DIR = os.path.join(_PACKAGE, "plugins")
"""The plugins that come with nodectl."""
INCLUDE_DIR = os.path.join(_PACKAGE, "include")
"""Where compilers of SPANK plugins find slurm/spank.h."""
