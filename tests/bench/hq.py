"""HyperQueue as it is measured: its server and a worker in this process, by the package `hyperqueue`.

usage: hq.py COMMANDS CORES; for each line on stdin it runs so many commands and prints the seconds that they took.

Its wait looks once a second, so the last task, which depends on all others, tells the time of the end.
"""

from __future__ import annotations

import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

_TRUE = "/bin/true"


def main(count: int, cores: int) -> None:
    hyperqueue, clusters = import_module("hyperqueue"), import_module("hyperqueue.cluster")
    with (
        tempfile.TemporaryDirectory(prefix="nodectl-bench-") as here,
        clusters.LocalCluster(here, clusters.WorkerConfig(cores)) as cluster,
    ):
        client, clock = cluster.client(), Path(here, "clock")
        for _ in sys.stdin:
            begun = time.time()
            job = hyperqueue.Job(here)
            tasks = [job.program([_TRUE, str(number)], stdout=None, stderr=None) for number in range(count)]
            job.program(["/bin/date", "+%s.%N"], stdout=str(clock), stderr=None, deps=tasks)
            client.wait_for_jobs([client.submit(job)])
            print("took", float(clock.read_text()) - begun, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
