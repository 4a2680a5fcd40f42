"""Workloads that are made up: the same for the same seed, and such that every job could run on the machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.lab.simulation.generator import Machine, Recipe, generate, recipe_of
from nodectl.lab.simulation.workload import BadWorkload

NODE = Machine(64, 64, 256_000, (("gpu", 4),))


def test_a_seed_names_one_workload() -> None:
    recipe = Recipe(300, 20)
    assert generate(recipe, NODE, 5) == generate(recipe, NODE, 5)
    assert generate(recipe, NODE, 5).jobs != generate(recipe, NODE, 6).jobs


@given(
    st.integers(0, 2**31), st.integers(1, 200), st.integers(1, 30), st.floats(0.1, 5),
    st.sampled_from([1, 2, 3, 16, 64]), st.sampled_from([0, 100, 64_000]), st.booleans(),
)  # fmt: skip
def test_each_job_fits_the_machine_it_is_made_for(
    seed: int, jobs: int, users: int, load: float, cpus: int, memory: int, devices: bool
) -> None:
    machine = Machine(cpus, cpus, memory, (("gpu", 2),) if devices else ())
    workload = generate(Recipe(jobs, users, load), machine, seed)
    assert sum(len(job.runs) for job in workload.jobs) == jobs
    assert [job.submit for job in workload.jobs] == sorted(job.submit for job in workload.jobs)
    for job in workload.jobs:
        assert 1 <= job.cpus <= cpus
        assert max(job.memory, job.mem_per_cpu * job.cpus) <= memory or job.cpus * job.mem_per_cpu <= max(memory, cpus)
        assert all(count <= 2 for _, count in job.gres)
        assert job.limit > 0
        assert min(job.runs) > 0


def test_shapes_are_mixed() -> None:
    jobs = generate(Recipe(2000, 50), NODE, 3).jobs
    assert {job.name for job in jobs} == {"serial", "wide", "long", "array", "large", "device"}
    assert len({job.user for job in jobs}) > 40
    assert {job.cpus for job in jobs} >= {1, 2, 4, 64}
    over = sum(max(job.runs) > job.limit for job in jobs)
    assert 0 < over < len(jobs) / 5


@pytest.mark.parametrize(
    ("text", "recipe"), [("50", Recipe(50)), ("jobs=5,users=2,load=0.5,seconds=60", Recipe(5, 2, 0.5, 60.0))]
)
def test_a_recipe_is_read(text: str, recipe: Recipe) -> None:
    assert recipe_of(text) == recipe


@pytest.mark.parametrize("text", ["", "many", "0", "jobs=1,jobs=2", "job=3", "load=nan", "seconds=inf", "users=0"])
def test_a_bad_recipe_is_refused(text: str) -> None:
    with pytest.raises(BadWorkload):
        recipe_of(text)
