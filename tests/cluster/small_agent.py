"""An agent that does nothing but what the engine and the holder see of one.

usage: small_agent.py DIRECTORY; it writes there what it was told, by its node. A file `fail.NODE` there, `mute.NODE` or
`talk.NODE` has this node's fail, never join, or say something first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(place: Path) -> int:
    if "NODECTL_AGENT" in os.environ:
        _, number, nodes = os.environ["NODECTL_AGENT"].split(" ")
        rank = int(number)
        name = (*nodes.split(","), "")[rank]
    else:
        rank, name = int(os.environ["SLURM_NODEID"]), os.environ["SLURMD_NODENAME"]
    secret = sys.stdin.readline()
    if (place / f"talk.{name}").exists():
        print("a word to people", file=sys.stderr, flush=True)
    if (place / f"fail.{name}").exists():
        print(f"failed {name} its disk is full", flush=True)
        return 1
    if rank == 0:
        print("leader 10.0.0.1:1 [::1]:2", flush=True)
    told = secret + sys.stdin.readline()
    if not name:  # a guest
        print(f"joined {rank}", flush=True)
        return int(sys.stdin.read() != "")
    (place / f"told.{name}").write_text(told)
    if not (place / f"mute.{name}").exists():
        print(f"joined {rank}", flush=True)
    sys.stdin.read()
    (place / f"ended.{name}").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
