"""Generated workloads: a few busy users and many quiet users, each with habits; the same jobs for the same seed.

Some jobs are short and serial, some wide, some long, some arrays of many tasks, some want much memory or devices. Users
submit in bursts, by day more than by night; their limits are seldom right: round numbers above, the default of their
script, now and then too little. The CPU seconds submitted in a second are `load` times the machine's CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from random import Random

from nodectl.lab.simulation.workload import MOST_JOBS, BadWorkload, WorkJob, Workload, in_order

_FIRST_UID = 100_000
_DAY = 86_400
_ROUND = (60, 300, 600, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800)
_SERIAL, _WIDE, _LONG, _ARRAY, _LARGE, _DEVICE = "serial", "wide", "long", "array", "large", "device"
_LARGEST_ARRAY = 20


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine for the jobs: CPUs in all, and of a node CPUs, memory in MiB and devices by name."""

    cpus: int
    node_cpus: int
    memory: int = 0
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of a workload: numbers of jobs and users, and the load.

    Each task of an array counts as a job; `seconds`: the typical run time.
    """

    jobs: int = 1000
    users: int = 10
    load: float = 1.1
    seconds: float = 300.0


_NAMES = tuple(field.name for field in fields(Recipe))


def recipe_of(text: str) -> Recipe:
    """Parse `1000` or `jobs=1000,users=50,load=0.9,seconds=60`. Raises BadWorkload."""
    wanted = f"--generate {text[:60]!r}"
    values: dict[str, float] = {}
    for word in text.split(","):
        name, _, value = word.partition("=") if "=" in word else ("jobs", "", word)
        if name not in _NAMES or name in values:
            raise BadWorkload(f"{wanted}: {name[:30]!r} is none of {', '.join(_NAMES)}, or there twice")
        try:
            values[name] = float(value) if name in ("load", "seconds") else int(value)
        except ValueError:
            raise BadWorkload(f"{wanted}: {name} is {value[:30]!r}, not a number") from None
    recipe = Recipe(**values)  # type: ignore[arg-type]  # whole where they have to be
    if not 1 <= recipe.jobs <= MOST_JOBS or not 1 <= recipe.users <= 100_000:
        raise BadWorkload(f"{wanted}: from 1 to {MOST_JOBS} jobs of 1 to 100000 users")
    if not 0.001 <= recipe.load <= 1000 or not 1 <= recipe.seconds <= 10_000_000:
        raise BadWorkload(f"{wanted}: a load from 0.001 to 1000, seconds from 1 to 10000000")
    return recipe


def generate(recipe: Recipe, machine: Machine, seed: int = 1) -> Workload:
    """Make the workload of a recipe for this machine."""
    random = Random(seed)  # noqa: S311 - nothing secret is made of it
    users = [f"user{number:02}" for number in range(1, recipe.users + 1)]
    busy = [1 / (place + 1) for place in range(len(users))]
    habits = [_habit(random, machine) for _ in users]
    jobs: list[WorkJob] = []
    tasks = 0
    while tasks < recipe.jobs:
        who = random.choices(range(len(users)), busy)[0]
        kind = random.choices(*habits[who])[0]
        job = _job(random, machine, recipe, kind, recipe.jobs - tasks)
        number = len(jobs) + 1
        jobs.append(replace(job, number=number, user=users[who], uid=_FIRST_UID + who, name=kind))
        tasks += len(job.runs)
    work = sum(job.cpus * min(run, job.limit or run) for job in jobs for run in job.runs)
    times = _times(random, len(jobs), work / (machine.cpus * recipe.load))
    made = [
        replace(job, submit=time, begin=time + job.begin if job.begin else 0.0)
        for job, time in zip(jobs, times, strict=True)
    ]
    about = {name: f"{getattr(recipe, name):g}" for name in _NAMES} | {"seed": str(seed)}
    return in_order(f"generated, seed {seed}", made, [], about, [])


def _habit(random: Random, machine: Machine) -> tuple[list[str], list[float]]:
    """Return the kinds of jobs of a user, and a weight for each."""
    weights = {_SERIAL: 4.0, _WIDE: 2.0, _LONG: 1.0, _ARRAY: 1.0}
    if machine.memory:
        weights[_LARGE] = 1.0
    if machine.gres:
        weights[_DEVICE] = 1.5
    favourite = random.choice(list(weights))
    weights[favourite] *= 5
    return list(weights), list(weights.values())


def _job(random: Random, machine: Machine, recipe: Recipe, kind: str, most: int) -> WorkJob:
    whole = machine.node_cpus
    run = random.lognormvariate(math.log(recipe.seconds), 1.2) * (6 if kind == _LONG else 1)
    run = round(max(1.0, min(run, 200 * recipe.seconds)), 3)
    runs: tuple[float, ...] = (run,)
    tasks, cpus_per_task, memory, per_cpu, array = 1, random.choice((1, 1, 1, 2)), 0, 0, ""
    gres: tuple[tuple[str, int], ...] = ()
    if kind == _WIDE:
        tasks = min(2 ** random.randint(1, max(1, whole.bit_length() - 1)), whole)
    elif kind == _ARRAY:
        size = min(random.randint(2, _LARGEST_ARRAY), most)
        array = f"0-{size - 1}" if size > 1 else ""
        runs = tuple(round(run * random.uniform(0.5, 1.5), 3) for _ in range(size))
    elif kind == _LARGE:
        memory = int(machine.memory * random.uniform(0.1, 0.9))
    elif kind == _DEVICE:
        name, count = random.choice(machine.gres)
        gres = ((name, random.randint(1, count)),)
    cpus_per_task = min(cpus_per_task, whole // tasks)
    if machine.memory and not memory and random.random() < 0.7:
        per_cpu = max(1, int(machine.memory / whole * random.uniform(0.1, 1.0)))
    begin = random.uniform(1, 5) * recipe.seconds if random.random() < 0.03 else 0.0
    return WorkJob(
        1, 0.0, runs, limit=_limit(random, max(runs)), tasks=tasks, cpus_per_task=cpus_per_task, memory=memory,
        mem_per_cpu=per_cpu, gres=gres, array=array, array_limit=random.choice((0, 0, 3)) if array else 0,
        nice=random.choice((0, 0, 0, 0, 100)), begin=begin,
        dependency="", exit_code=int(random.random() < 0.05), requeue=random.random() < 0.9,
    )  # fmt: skip


def _limit(random: Random, run: float) -> int:
    """Return a user's time limit for a job of this run time: a round number, usually far above, sometimes below."""
    chance = random.random()
    if chance < 0.05:
        return max(1, int(run * random.uniform(0.3, 0.95)))
    if chance < 0.10:
        return int(run * 50) + 60
    padded = run * random.uniform(1.05, 4)
    return next((limit for limit in _ROUND if limit >= padded), int(padded) + 1)


def _times(random: Random, count: int, span: float) -> list[float]:
    """Return the submission times of the jobs within `span` seconds: bursts, and over more than a day also nights."""
    times: list[float] = []
    busiest: Callable[[float], float] = lambda at: 0.6 + 0.4 * math.sin(2 * math.pi * at / _DAY)  # noqa: E731
    while len(times) < count:
        at = random.uniform(0, span)
        if span > _DAY and random.random() > busiest(at):
            continue
        burst = 1 if random.random() < 0.7 else random.randint(2, 15)
        times += [at + random.expovariate(1.0) for _ in range(burst)]
    chosen: Sequence[float] = sorted(times[:count])
    return [round(time - chosen[0], 3) for time in chosen]
