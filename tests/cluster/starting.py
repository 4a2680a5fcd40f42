"""`nodectl cluster start` with a small agent in place of the real one; what it prints is JSON.

usage: starting.py SITE-PACKAGES DIRECTORY SECONDS [HOSTS SSH]
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from nodectl.client.command import Failed
from nodectl.cluster.engine.engine import Engine
from nodectl.cluster.engine.hosts import Hosts
from nodectl.cluster.engine.slurm import Slurm
from nodectl.cluster.start import starter


def main(directory: str, seconds: str, *hosts: str) -> None:
    engine: Engine = Hosts(hosts[0], hosts[1], os.environ) if hosts else Slurm(os.environ)
    agent = [sys.executable, "-I", str(Path(__file__).with_name("small_agent.py")), directory]
    try:
        outcome = starter.start(engine, agent, float(seconds))
    except Failed as failed:
        print(json.dumps({"refused": str(failed)}))
    else:
        print(json.dumps({"job": outcome.nodes.job, "missing": outcome.missing}))


if __name__ == "__main__":
    main(*sys.argv[2:])
