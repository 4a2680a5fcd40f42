"""The table of rings, in the order in which they start: what takes longest first."""

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
_ROOTFUL = "rootful and not packages"

VM = "vm"
RINGS = (
    Ring(VM, "vm", ("tests/vm",), root=True, apt=True),  # run by tests/vm/host/ring.py
    Ring("rootful", _ROOTFUL, ("tests/rootful", "tests/conformance"), workers=4, root=True),
    Ring("cluster", "cluster", ("tests/cluster",), root=True, apt=True),
    Ring("lint", "lint", ("tests/lint",)),
    Ring(
        "unit",
        "not (rootful or packages)",
        ("tests/unit", "tests/oracle", "tests/native", "tests/conformance"),
        workers=2,
    ),
    Ring("forks", _ROOTFUL, _FORKS, workers=2, root=True, environment={"NODECTL_TEST_FORKS": "1"}),
    Ring(
        "packages",
        "packages",
        ("tests/packaging", "tests/native", *(f"tests/rootful/{name}" for name in ("mpi", "plugins", "spank"))),
        root=True,
        apt=True,
        packages=True,
    ),
    Ring("systemd", "systemd", ("tests/systemd",), program="systemd-analyze"),
)
