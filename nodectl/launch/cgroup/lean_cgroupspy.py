"""Imports cgroupspy without `collections`, of which cgroupspy needs the abstract classes, which are in another module.

`collections` and what it imports are 0.22 of 5.8 MiB of a forkserver, and 3 % of the bench row "one stepd, PSS".
`tree.py` imports this first, in every process.
"""

import _collections_abc
import sys

_is_absent = "collections.abc" not in sys.modules
if _is_absent:
    sys.modules["collections.abc"] = _collections_abc
import cgroupspy.interfaces  # noqa: E402, F401

if _is_absent:
    del sys.modules["collections.abc"]  # later code imports the module itself
