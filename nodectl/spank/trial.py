"""Whether this process is part of a trial (`nodectl spank try`), which a variable in its environment says.

Asked in each process that loads SPANK plugins, before it does. The probe is imported in trials only.
"""

import os

TRIAL = "_NODECTL_TRIAL"
"""The variable: the path of the trial's description."""


def start_probe() -> None:
    """In a process of a trial: from now on the probe writes down what plugins do. Elsewhere nothing happens."""
    if path := os.environ.get(TRIAL):
        from nodectl.spank import probe  # only for trials

        probe.start(path)


def environment() -> dict[str, str]:
    """What a process of a trial puts into the environment of the next one."""
    return {TRIAL: os.environ[TRIAL]} if TRIAL in os.environ else {}
