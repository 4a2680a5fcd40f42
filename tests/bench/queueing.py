"""What the queue costs: a simulated machine of 64 CPUs, in front of which 2,000 jobs of 50 users stand at once."""

from __future__ import annotations

import time
from dataclasses import replace

from bench.rows import Row
from nodectl.lab.simulation import described, generator, stage, submission

JOBS, USERS = 2_000, 50
_NODE = "2s:16c:2t,mem=256G,gpu=4"


def queueing() -> list[Row]:
    """The row of the table."""
    nodes = described.nodes_of(_NODE)
    made = generator.generate(generator.Recipe(JOBS, USERS), submission.machine_of(nodes), 1)
    at_once = replace(made, jobs=tuple(replace(job, submit=0.0) for job in made.jobs))
    begun = time.process_time()
    played = stage.play("select/cons_tres", nodes, at_once, stage.Setting(seconds=0))
    spent = time.process_time() - begun
    if played.violations:
        raise RuntimeError(played.violations[0].words)
    words = f"jobs a second of CPU, a queue of {JOBS:,} played"
    return [Row(words, len(played.stories) / spent, 0, "", 200, more=True)]
