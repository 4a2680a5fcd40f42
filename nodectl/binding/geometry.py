"""What a request asks of the geometry of a node: threads of its cores, cores of its sockets, sockets."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.binding.request import UNLIMITED, Request


def given(number: int | None) -> int | None:
    """A number of an option; None also for "as many as there are"."""
    return None if number == UNLIMITED else number


def threads_used(threads: int, request: Request, per_core: int | None = None) -> int:
    """How many of a core's threads the job may use; 0 where it wants more than there are. `per_core`: tasks on a core
    at most, where the request does not say.
    """
    asked = given(request.threads_per_core)
    per_core = given(request.ntasks_per_core or per_core)
    if asked and asked > threads:
        return 0
    if per_core:
        threads = min(threads, per_core * (request.cpus_per_task or 1))
    return min(threads, asked) if asked else threads


def sockets_used(free: Sequence[int], request: Request) -> list[bool] | None:
    """Which of the sockets with so many free cores serve the request; None where they are too few."""
    least = given(request.cores_per_socket) or 1
    serve = [cores >= least for cores in free]
    return serve if sum(serve) >= (given(request.sockets_per_node) or 1) else None
