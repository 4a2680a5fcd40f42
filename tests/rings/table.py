"""The table of rings, in the order in which they start."""

from __future__ import annotations

from rings.ring import Ring

# Some rootful tests run once more with no task that shares its runner's memory.
_FORKS = (
    *(f"tests/rootful/confine/test_secure_{name}.py" for name in ("files", "launch")),
    *(
        f"tests/rootful/steps/test_{name}.py"
        for name in ("bad_request", "binding", "components", "effective_user", "environment", "manners", "multi_prog",
                     "process_groups", "program_start", "reasons", "stdio", "task_scripts")
    ),
    "tests/rootful/steps/test_shared_memory.py::test_what_a_test_says_of_no_key_is_what_the_environment_says",
)  # fmt: skip
_ROOTFUL = "rootful and not (lint or systemd or packages or cluster)"

VM = "vm"
RINGS = (
    Ring(VM, "vm", root=True, apt=True),  # run by tests/vm/host/ring.py
    Ring("cluster", "cluster", root=True, apt=True),
    Ring("lint", "lint"),
    Ring("unit", "not (lint or rootful or systemd or packages or cluster or vm)", workers=2),
    Ring("rootful", _ROOTFUL, workers=4, root=True),
    Ring("forks", _ROOTFUL, files=_FORKS, workers=2, root=True, environment={"NODECTL_TEST_FORKS": "1"}),
    Ring("packages", "packages", root=True, apt=True, packages=True),
    Ring("systemd", "systemd", program="systemd-analyze"),
)
