"""The import of cgroupspy without `collections`, of which cgroupspy needs only the abstract classes.

This saves a fifth of a megabyte in each forkserver, which every stepd shares. `tree.py` imports this first, in any
process.
"""

import _collections_abc
import sys

_is_there = "collections.abc" in sys.modules
if not _is_there:
    sys.modules["collections.abc"] = _collections_abc  # whose names those of collections.abc are
import cgroupspy.interfaces  # noqa: E402, F401

if not _is_there:
    del sys.modules["collections.abc"]  # others import it themselves
