"""A request's demands on the geometry of a node: threads of a core, cores of a socket, sockets."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.placement.binding.request import UNLIMITED, LayoutRequest


def given(number: int | None) -> int | None:
    """Return the number of an option, None for no number and for "as many as there are"."""
    return None if number == UNLIMITED else number


def threads_used(threads: int, request: LayoutRequest, per_core: int | None = None) -> int:
    """Return how many of a core's threads the job may use; 0 if the job wants more than a core has.

    `per_core`: the most tasks on a core, where the request has no limit.
    """
    asked = given(request.threads_per_core)
    per_core = given(request.ntasks_per_core or per_core)
    if asked and asked > threads:
        return 0
    if per_core:
        threads = min(threads, per_core * (request.cpus_per_task or 1))
    return min(threads, asked) if asked else threads


def sockets_used(free: Sequence[int], request: LayoutRequest) -> list[bool] | None:
    """Return for each socket whether the free cores suffice for the request; None if too few sockets do."""
    least = given(request.cores_per_socket) or 1
    serve = [cores >= least for cores in free]
    return serve if sum(serve) >= (given(request.sockets_per_node) or 1) else None
