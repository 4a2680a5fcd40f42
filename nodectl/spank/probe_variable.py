"""Whether this process is part of a probe run (`nodectl spank try`), as a variable in the environment says.

Each process asks before it loads SPANK plugins. Only probe runs import the probe.
"""

import os

NAME = "_NODECTL_PROBE"
"""The variable: the path of the file that tells the probe what to do."""


def start_probe() -> None:
    """Start the probe in a process of a probe run; do nothing elsewhere."""
    if path := os.environ.get(NAME):
        from nodectl.spank import probe  # only for probe runs

        probe.start(path)


def environment() -> dict[str, str]:
    """Return the variables for the environment of a probe run's next process."""
    return {NAME: os.environ[NAME]} if NAME in os.environ else {}
