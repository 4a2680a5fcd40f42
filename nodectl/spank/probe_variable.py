"""Whether this process is part of a probe run (`nodectl spank try`), which a variable in its environment says.

Asked in each process that loads SPANK plugins, before it does. The probe is imported in probe runs only.
"""

import os

NAME = "_NODECTL_PROBE"
"""The variable: the path of the file that tells the probe what to do."""


def start_probe() -> None:
    """In a process of a probe run: from now on the probe writes down what plugins do. Elsewhere nothing happens."""
    if path := os.environ.get(NAME):
        from nodectl.spank import probe  # only for probe runs

        probe.start(path)


def environment() -> dict[str, str]:
    """What a process of a probe run puts into the environment of the next one."""
    return {NAME: os.environ[NAME]} if NAME in os.environ else {}
