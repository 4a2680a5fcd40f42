"""Layouts that the daemon keeps: by what was asked, not by the words for it, and never more than a few MiB."""

from __future__ import annotations

import tracemalloc

from nodectl.placement.binding import node
from nodectl.placement.binding.layout import Layout
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import LayoutRequest, Settings
from nodectl.placement.machine.spec import from_spec
from nodectl.service.daemon.admission.layout_cache import LayoutCache

MACHINE = from_spec("2s:8c:2t")
MOST = 1 << 20


class Counted:
    """Makes layouts, and counts them."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, request: LayoutRequest, cpus: int) -> Layout:
        self.made += 1
        return node.lay_out(MACHINE, cpus, request, Settings(), "n1")


def test_the_same_question_in_other_words_is_answered_once() -> None:
    counted = Counted()
    answers = LayoutCache(counted)
    first = answers.get(request_of({"ntasks": "2", "cpu_bind": "cores"}, {}), MACHINE.online)
    for words in ("cores,quiet", "CORES", "verbose,sockets,q,cores"):
        assert answers.get(request_of({"ntasks": "00002", "cpu_bind": words}, {}), MACHINE.online) is first
    assert counted.made == 1
    answers.get(request_of({"ntasks": "3", "cpu_bind": "cores"}, {}), MACHINE.online)
    answers.get(request_of({"ntasks": "2", "cpu_bind": "cores"}, {}), MACHINE.online >> 16)
    assert counted.made == 3


def test_a_user_who_never_asks_the_same_twice_does_not_fill_the_memory() -> None:
    answers = LayoutCache(Counted(), MOST)
    kept: list[int] = []
    tracemalloc.start()
    try:
        for number in range(60):
            maps = f"map_cpu:{number % 32},0*4000"
            hosts = f"x[{number}-4000]"
            answers.get(request_of({"ntasks": 400 + number, "cpu_bind": maps}, {}), MACHINE.online)
            answers.get(request_of({"ntasks": 1 + number, "exclude": hosts}, {}), MACHINE.online)
            assert answers.size <= MOST
            kept.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert kept[-1] < 4 * MOST  # 40 MiB, if all were kept


def test_what_was_asked_lately_is_kept() -> None:
    counted = Counted()
    answers = LayoutCache(counted, MOST)
    short = request_of({"ntasks": 1}, {})
    for number in range(200):
        answers.get(short, MACHINE.online)
        answers.get(request_of({"ntasks": 32, "relative": 0, "mincpus": 1 + number % 100}, {}), MACHINE.online)
    assert counted.made <= 1 + 200
    before = counted.made
    answers.get(short, MACHINE.online)
    assert counted.made == before
